"""SIGKILL of who stores a run of a session, of who runs it, and of who has ended it while the next one waits: whoever
is there goes on with the conversation, nothing that was said is lost or said twice, and a resume token is good once.

What a run of a session remembers is the session's history, so there is no moment between the end of a run and that.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from placet.aio import AsyncClient
from placet.errors import PermissionDeniedError
from placet.testing.model_servers import KEY, OpenAIServer, Say
from placet.v1 import session_service_pb2
from placet_server.store.connection import connect
from tests.examples import LONG
from tests.faults.caller import state_of
from tests.faults.processes import Server, Servers
from tests.faults.talk_app import AT_THE_DOOR, IN_THE_RUN, SELDOM
from tests.faults.test_approval_killed import bury
from tests.postgres import Database

CUTS = [cut for cut in (*AT_THE_DOOR, *IN_THE_RUN) if LONG or cut not in SELDOM]
# The provider has the request, and nobody has the answer.
ASKED_AGAIN = CUTS.index("turn_received") + 1


def asked(cut: str) -> dict[str, Any]:
    return {"parts": [{"text": f"What of {cut}?"}]}


def fields_of(database: Database, model: OpenAIServer, folder: Path) -> dict[str, Any]:
    (folder / "key").write_text(KEY)
    (folder / "models.toml").write_text(
        '[models.test]\nkind = "openai_compatible"\nmodel = "x"\ncredential = "test"\n'
        f'base_url = "{model.base_url}"\n'
    )
    (folder / "credentials.toml").write_text(f'[credentials.test]\nfile = "{folder / "key"}"\n')
    return {
        "dsn": database.dsn,
        "dsn_durability": "ephemeral",
        "store_connections_max": 3,
        "app": "tests.faults.talk_app:app",
        "model_file": folder / "models.toml",
        "credential_file": folder / "credentials.toml",
    }


async def put(server: Server, session_id: str, cut: str) -> str:
    """Stored behind whatever is before it."""
    async with AsyncClient.connect(server.target, token=server.token) as client:
        stored = await client.submit(f"talk.{cut}", asked(cut), key=cut, session=session_id, on_busy="queue")
    return stored.action_id


async def test_whoever_dies_of_it_a_conversation_goes_on_and_nothing_in_it_is_lost_or_doubled(
    database: Database, servers: Servers, open_folder: Path
) -> None:
    async with OpenAIServer([Say(f"So much for {cut}.") for cut in CUTS]) as model:
        fields = fields_of(database, model, open_folder)
        # It stores, sweeps and rescues, and takes nothing from queues.
        witness = await asyncio.to_thread(servers.start, queue_slots=0, **fields)
        connection = await connect(database.dsn)
        async with AsyncClient.connect(witness.target, token=witness.token) as client, asyncio.timeout(120):
            session = await client.create_session()
            one, tokens, ids = session.session_id, [session.resume_token], []

            async def dies(cut: str, **options: Any) -> None:
                at_the_door = cut in AT_THE_DOOR
                mortal = await asyncio.to_thread(
                    servers.start, kill_at=f"{cut}:talk.{cut}", wait=at_the_door, **options, **fields
                )
                asking = asyncio.ensure_future(put(mortal, one, cut)) if at_the_door else None
                ended = await asyncio.to_thread(mortal.ended)
                if asking is not None:
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)
                assert -signal.SIGKILL == ended
                await bury(connection)
                tokens.append((await client.resume_session(one, tokens[-1])).resume_token)

            door = [cut for cut in CUTS if cut in AT_THE_DOOR]
            for cut in door:
                await dies(cut, queue_slots=0)
                # Sent again: the same, if it was stored.
                ids.append(await put(witness, one, cut))
            ids += [await put(witness, one, cut) for cut in CUTS[len(door) :]]
            assert len(CUTS) == len(set(ids)) == (await client.session(one)).runs
            for cut in CUTS[len(door) :]:
                await dies(cut)
            await asyncio.to_thread(servers.start, **fields)
            assert {"SUCCEEDED"} == {state_of(await client.wait(action_id)) for action_id in ids}
            told = [message async for message in client.messages(one)]
            for token in tokens[:-1]:
                with pytest.raises(PermissionDeniedError):
                    await client.resume_session(one, token)
        await connection.close()
        expected = [
            (number, who, words)
            for number, cut in enumerate(CUTS, start=1)
            for who, words in (("user", f"What of {cut}?"), ("agent", f"So much for {cut}."))
        ]
        assert expected == [(m.number, _who(m.role), "".join(p.text for p in m.parts)) for m in told]
        again = Counter([ASKED_AGAIN])
        assert Counter(range(1, len(CUTS) + 1)) + again == Counter(r.turn for r in model.requests)
        said = [each["content"] for each in model.requests[-1].json["messages"] if each["role"] != "system"]
        assert [words for _, _, words in expected[:-1]] == said


def _who(role: session_service_pb2.MessageRole.ValueType) -> str:
    return session_service_pb2.MessageRole.Name(role).removeprefix("MESSAGE_ROLE_").lower()
