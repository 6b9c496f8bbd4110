"""A stream that was read at one server goes on at another by its cursor, and so does the feed: nothing is lost, nothing
comes twice, also when the first server is gone."""

from __future__ import annotations

from typing import Any

from placet.aio import AsyncClient
from tests.faults.processes import Provider, Servers
from tests.postgres import Database


def said(event: Any) -> str:
    return str(event.chunk.text or event.type.removeprefix("placet.action."))


async def test_a_stream_and_a_feed_move_from_one_server_to_another(
    database: Database, servers: Servers, provider: Provider
) -> None:
    fields: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    working, first, second = (servers.start(**fields, queue_slots=slots) for slots in (4, 0, 0))
    provider.hold("before")
    async with (
        AsyncClient.connect(first.target, token=first.token) as here,
        AsyncClient.connect(second.target, token=second.token) as there,
    ):
        action_id = (await here.submit("till.narrate", {"order": "A-1"})).action_id
        await provider.until_held(1, [])
        told, lives, cursor = [], [], ""
        async with here.watch(action_id, timeout=30) as events:
            async for event in events:
                told.append(said(event))
                cursor = event.cursor
                if told[-1] == "before 1":
                    break
        async with here.watch_events(timeout=30) as feed:
            async for event in feed:
                lives.append(event.sequence)
                if len(lives) == 2:
                    break
            place = feed.cursor
        first.kill()
        provider.release()
        async with there.watch(action_id, after=cursor, timeout=30) as events:
            told += [said(event) async for event in events]
        async with there.watch_events(after=place, timeout=30) as feed:
            async for event in feed:
                lives.append(event.sequence)
                if event.WhichOneof("event") == "settled":
                    break
    whole = ["before 0", "before 1", "before 2", "after 0", "after 1", "after 2"]
    assert whole == [word for word in told if " " in word]
    assert ["admitted", "attempt_started", "settled"] == [word for word in told if " " not in word]
    assert [1, 2, 3] == lives
    assert working.code is None
