"""An entry of a run that is not in the store as it was written is told as that, and hides nothing that was said before
and after it; looking changes nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import placet
import placet.testing
from placet import errors
from placet.testing import Say, call
from placet.testing.in_process import Server

# What is left of a body, by what may have come over it.
BREAKS = {
    "cut off": "left(body, 40)",
    "sizes of others": "replace(body, '{\"sizes\":[', '{\"sizes\":[1')",
    "a member of another kind": 'replace(body, \'"turn":1\', \'"turn":"one"\')',
    # As long as what was there.
    "a message that is none": "replace(body, '\"parts\":[{', '\"party\":[{')",
}


def _shop() -> placet.App:
    app = placet.App("shop")

    @app.tool("shop.find", "read")
    async def find() -> None: ...

    app.agent("shop.helper", model="fast", tools=["shop.find"])
    return app


async def _stored(server: Server) -> list[Any]:
    async with server.placet.kernel.journal.pool.connection() as connection:
        rows = await connection.fetch("select action_id::text, ordinal, body from run_entries order by 1, 2")
        states = await connection.fetch("select state, sequence from actions order by action_id")
    return [*map(tuple, rows), *map(tuple, states)]


@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_answer_is_a_message_and_a_turn_that_say_so(name: str) -> None:
    script = [Say("I look.", call("shop.find")), Say("Found.")]
    async with placet.testing.server(_shop(), models={"fast": script}) as server:
        client = server.client()
        session = (await client.create_session("shop.helper")).session_id
        run = (await client.ask("shop.helper", "Find it.", session=session)).action_id
        async with server.placet.kernel.journal.pool.connection() as connection:
            await connection.execute(
                f"update run_entries set body = {BREAKS[name]} where type = 'answered' and turn = 1"
            )
        before = await _stored(server)

        messages = [each async for each in client.messages(session)]
        told = [([part.text for part in each.parts], each.problem, len(each.calls)) for each in messages]
        assert [(["Find it."], "", 0), ([], "memory_broken", 0), (["Found."], "", 0)] == told
        turns = [each async for each in client.turns(run, with_messages=True)]
        # The words of a message are kept as they came, and are not looked at.
        problem = "" if name == "a message that is none" else "memory_broken"
        assert [(1, problem, True), (2, "", True)] == [
            (each.turn, each.problem, each.HasField("answer_time")) for each in turns
        ]
        assert "Found." in json.dumps(json.loads(turns[1].messages_json))
        assert before == await _stored(server)


async def test_the_next_run_of_such_a_session_fails_by_name_and_is_told_of_it() -> None:
    script = [Say("I look.", call("shop.find")), Say("Found.")]
    async with placet.testing.server(_shop(), models={"fast": script}) as server:
        client = server.client()
        session = (await client.create_session("shop.helper")).session_id
        await client.ask("shop.helper", "Find it.", session=session)
        async with server.placet.kernel.journal.pool.connection() as connection:
            await connection.execute("update run_entries set body = left(body, 40) where type = 'answered'")
        with pytest.raises(errors.PlacetError) as caught:
            await client.ask("shop.helper", "And?", session=session)
        assert caught.value.outcome is not None
        assert "memory_broken" == caught.value.outcome.failure_code
        told = [each.problem async for each in client.messages(session)]
        assert ["", "memory_broken", "memory_broken"] == told
