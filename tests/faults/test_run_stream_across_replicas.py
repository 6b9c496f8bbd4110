"""Who listens to a run at the server that runs it, and loses both, goes on at another server by his cursor: no word is
missing, none comes twice, and what the lost server's model had said of the turn is told to be void.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from placet import Restarted, RunEvent, TextDelta
from placet.aio import AsyncClient
from placet.testing.model_servers import KEY, OpenAIServer, Say, Stall, call
from tests.core.agents import end_of
from tests.faults.processes import Servers
from tests.postgres import Database

LOOK = Say("I look it up.", call("shop-find", order="A-1"))
# The first piece of the answer.
HEARD = "It comes tom"
ANSWER = Say(HEARD + "orrow, by the first train.")


def text(events: list[RunEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta) and event.turn == 2)


def cursors(events: list[RunEvent]) -> list[str]:
    return [event.event.cursor for event in events]


async def test_a_listener_goes_on_elsewhere_when_the_server_that_runs_it_is_killed(
    database: Database, servers: Servers, open_folder: Path
) -> None:
    silent = Stall(60.0, end_of(OpenAIServer, ANSWER, HEARD, model="x"))
    async with OpenAIServer([LOOK, silent, ANSWER]) as model:
        (open_folder / "key").write_text(KEY)
        (open_folder / "models.toml").write_text(
            '[models.test]\nkind = "openai_compatible"\nmodel = "x"\ncredential = "test"\n'
            f'base_url = "{model.base_url}"\n'
        )
        (open_folder / "credentials.toml").write_text(f'[credentials.test]\nfile = "{open_folder / "key"}"\n')
        fields: dict[str, Any] = {
            "dsn": database.dsn,
            "dsn_durability": "ephemeral",
            "app": "tests.faults.shop_app:app",
            "model_file": open_folder / "models.toml",
            "credential_file": open_folder / "credentials.toml",
        }
        working, other = servers.start(**fields), servers.start(**fields, queue_slots=0)
        async with (
            AsyncClient.connect(working.target, token=working.token) as here,
            AsyncClient.connect(other.target, token=other.token) as there,
            asyncio.timeout(90),
        ):
            heard: list[RunEvent] = []
            async with here.ask_stream("shop.helper", "Where is it?", key="k") as run:
                async for event in run:
                    heard.append(event)
                    if text(heard):
                        break
                action_id, cursor = run.action_id, run.cursor
            working.kill()
            async with there.run_stream(action_id, after=cursor) as run:
                rest = [event async for event in run]
                reply = await run.reply()
            async with there.run_stream(action_id) as run:
                whole = [event async for event in run]
        assert [1, 2, 2] == [request.turn for request in model.requests]
    assert (ANSWER.text, HEARD) == (reply.text, text(heard))
    assert cursors(whole) == cursors([*heard, *rest])
    void = next(index for index, event in enumerate(rest) if isinstance(event, Restarted))
    assert ("", ANSWER.text) == (text(rest[:void]), text(rest[void:]))
    numbers = [(e.event.delta.attempt, e.event.delta.number) for e in whole if isinstance(e, TextDelta)]
    assert numbers == sorted(set(numbers))
