"""A message that says which one it is makes one action, whoever sends it again, and whenever."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet_server.core.admission.execute import Executed, execute
from placet_server.core.admission.submit import submit
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.retention import Retention, clean
from placet_server.model.action import Message, Submission
from placet_server.model.gate_errors import IdempotencyConflict
from placet_server.model.identity_errors import MessageReplayed
from placet_server.store.clock import FixedClock
from tests.core.kernels import BOB, EVE, call_of, open_kernel, put, run, states
from tests.core.workshop import Workshop
from tests.postgres import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def message(message_id: str = "m", at: datetime = NOW) -> Message:
    return Message(message_id=message_id, time_us=int(at.timestamp() * 1_000_000))


def opened() -> Workshop:
    shop = Workshop()
    shop.gate.set()
    return shop


async def say(
    kernel: Kernel,
    said: Message,
    key: str = "",
    value: Any = None,
    capability: str = "work.unsafe",
    **options: Any,
) -> Executed:
    return await execute(kernel, call_of(capability, value or {}, key, **options)._replace(message=said))


async def test_the_same_message_attaches_and_another_under_its_id_is_refused(database: Database) -> None:
    shop = opened()
    async with open_kernel(database.dsn, shop.app, clock=FixedClock(NOW)) as kernel:
        first = await say(kernel, message(), "k")
        again = await say(kernel, message(), "k")
        assert (first.action.action_id, False, True) == (
            again.action.action_id,
            first.attached,
            again.attached,
        )
        for options in ({"key": "other"}, {"key": "k", "capability": "work.idempotent"}):
            with pytest.raises(MessageReplayed) as met:
                await say(kernel, message(), **options)
            assert {"message_id": "m", "problem": "claimed"} == met.value.metadata()
        with pytest.raises(MessageReplayed):
            await say(kernel, message(), "k", {"order": "2"})
        with pytest.raises(IdempotencyConflict):
            await say(kernel, message("n"), "k", {"order": "2"})
        # Ids are their caller's, and their tenant's.
        assert not (await say(kernel, message(), "k", caller=EVE)).attached
        assert not (await say(kernel, message(), "bobs", caller=BOB)).attached
        assert (3, ["SUCCEEDED"] * 2) == (shop.effects, await states(kernel))


async def test_a_message_without_a_key_makes_one_action_however_often_it_comes_at_once(
    database: Database,
) -> None:
    shop = opened()
    async with open_kernel(database.dsn, shop.app, clock=FixedClock(NOW)) as kernel:
        done = await asyncio.gather(*(say(kernel, message(), capability="work.read") for _ in range(8)))
        assert 1 == len({each.action.action_id for each in done})
        assert ["SUCCEEDED"] == await states(kernel)
        mixed = [say(kernel, message(f"n{n % 3}"), capability="work.read") for n in range(6)]
        await asyncio.gather(*mixed, *(run(kernel, "work.read", {}) for _ in range(4)))
        assert 1 + 3 + 4 == len(await states(kernel))


async def test_a_replay_runs_nothing_once_its_key_is_forgotten(database: Database) -> None:
    shop, clock = opened(), FixedClock(NOW)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        first = (await say(kernel, message(), "k")).action
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set key_ttl = interval '1 second'")
        clock.advance(timedelta(seconds=60))
        assert first.action_id == (await say(kernel, message(), "k")).action.action_id
        # The key is free for a new message, and then for no old one.
        second = (await say(kernel, message("n", NOW), "k")).action
        assert first.action_id != second.action_id
        assert first.action_id == (await say(kernel, message(), "k")).action.action_id
        assert 2 == shop.effects


async def test_a_message_that_met_a_key_is_taken_for_its_holder(database: Database) -> None:
    shop = opened()
    async with open_kernel(database.dsn, shop.app, clock=FixedClock(NOW)) as kernel:
        holder = (await run(kernel, "work.unsafe", {}, "k")).action
        assert holder.action_id == (await say(kernel, message(), "k")).action.action_id
        with pytest.raises(MessageReplayed):
            await say(kernel, message(), "other")
        assert 1 == shop.effects


@pytest.mark.parametrize(
    ("seconds", "problem"), [(-301, "too_old"), (301, "in_the_future"), (-300, ""), (300, "")]
)
async def test_a_message_is_taken_near_its_time_only(database: Database, seconds: int, problem: str) -> None:
    async with open_kernel(database.dsn, opened().app, clock=FixedClock(NOW)) as kernel:
        said = message(at=NOW + timedelta(seconds=seconds))
        if not problem:
            await say(kernel, said, "k")
            return
        with pytest.raises(MessageReplayed) as refused:
            await say(kernel, said, "k")
        assert (problem, []) == (refused.value.problem, await states(kernel))


async def test_a_submission_is_stored_once(database: Database) -> None:
    async with open_kernel(database.dsn, opened().app, clock=FixedClock(NOW)) as kernel:

        async def send(key: str, capability: str = "work.read") -> Any:
            return await submit(
                kernel, call_of(capability, {}, key)._replace(message=message()), Submission()
            )

        answers = await asyncio.gather(*(send("") for _ in range(4)))
        assert 1 == len({each.action.action_id for each in answers})
        assert [False, True, True, True] == sorted(each.attached for each in answers)
        with pytest.raises(MessageReplayed):
            await send("k")
        await put(kernel, "work.read", {}, "k")
        with pytest.raises(MessageReplayed):
            await send("k")
        assert ["QUEUED"] * 2 == await states(kernel)


async def test_ids_are_forgotten_once_their_messages_would_not_be_taken(database: Database) -> None:
    clock = FixedClock(NOW)
    async with open_kernel(database.dsn, opened().app, clock=clock) as kernel:
        await say(kernel, message(), "k")
        found = []
        for hours in (0.9, 0.2):
            clock.advance(timedelta(hours=hours))
            async with kernel.journal.pool.connection() as connection:
                await connection.execute("update retention_walk set next_time = '-infinity'")
            found.append((await clean(kernel.journal, Retention(ended=None, dead_letter=None))).messages)
        assert [0, 1] == found
