"""Readers cost each other nothing: a thousand of one action look where one would, and one that is slow waits alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from placet.context import Context
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.share import SharedReads
from placet_server.core.publication.watch import watch_action
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.store import event as events
from tests.core.kernels import ALICE, only_action, open_kernel, run, until
from tests.core.workshop import Workshop
from tests.postgres import Database

WATCHERS = 1000


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each read of the store gave."""
    counted: list[int] = []
    read = events.read

    async def counting(*arguments: Any, **options: Any) -> Any:
        found = await read(*arguments, **options)
        counted.append(len(found))
        return found

    monkeypatch.setattr(events, "read", counting)
    return counted


def stream(kernel: Kernel, action_id: str, after: str = "") -> AsyncGenerator[Event | IdleCheckpoint, None]:
    return watch_action(kernel.journal, ALICE, action_id, after)


async def told(kernel: Kernel, action_id: str) -> tuple[str, ...]:
    async with aclosing(stream(kernel, action_id)) as items:
        return tuple(
            [str(item.body.get("text", item.type)) async for item in items if isinstance(item, Event)]
        )


async def test_a_thousand_watchers_of_one_action_read_as_one_and_a_slow_one_misses_nothing(
    database: Database, shop: Workshop, reads: list[int]
) -> None:
    async def talk(context: Context) -> str:
        await context.chunk("early")
        shop.began.set()
        await shop.gate.wait()
        for number in range(20):
            await context.chunk(f"{number}")
        return "said"

    shop.script = talk
    expected = ("admitted", "early", *map(str, range(20)), "settled")
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await shop.began.wait()
        action_id = (await only_action(kernel)).action_id
        async with aclosing(stream(kernel, action_id)) as slow:
            assert "admitted" == (await anext(slow)).type  # type: ignore[union-attr]
            watching = asyncio.gather(*(told(kernel, action_id) for _ in range(WATCHERS)))
            await until(lambda: len(kernel.journal.hub._waiting.get(action_id, ())) >= WATCHERS, 20.0)
            shop.gate.set()
            came = await watching
            await call
            rest = [item async for item in slow if isinstance(item, Event)]
    assert {expected} == set(came)
    assert [*expected[1:]] == [str(item.body.get("text", item.type)) for item in rest]
    assert WATCHERS / 10 > len(reads)


async def test_what_was_said_before_a_cancel_stays_readable_also_for_who_comes_late(
    database: Database, shop: Workshop
) -> None:
    async def talk(context: Context) -> str:
        for number in range(3):
            await context.chunk(f"{number}")
        shop.began.set()
        await shop.gate.wait()
        return "never"

    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await shop.began.wait()
        action_id = (await only_action(kernel)).action_id
        live = asyncio.create_task(told(kernel, action_id))
        await cancel_action(kernel.engine, ALICE, action_id, "enough")
        with pytest.raises(EffectAmbiguous):
            await call
        live.cancel()
        async with aclosing(stream(kernel, action_id)) as items:
            late = [await anext(items) for _ in range(6)]
    names = [str(item.body.get("text", item.type)) for item in late if isinstance(item, Event)]
    assert sorted(["admitted", "0", "1", "2", "cancel_requested", "ambiguous"]) == sorted(names)
    assert ["0", "1", "2", "ambiguous"] == [
        name for name in names if name not in ("admitted", "cancel_requested")
    ]


async def test_a_read_for_many_survives_the_one_who_made_it_and_is_never_older_than_who_asks() -> None:
    shared = SharedReads()
    begun: list[int] = []
    gates = [asyncio.Event() for _ in range(3)]

    async def ask() -> int:
        begun.append(len(begun))
        number = begun[-1]
        await gates[number].wait()
        return number

    leader = asyncio.create_task(shared.read("k", ask))
    await until(lambda: len(begun) == 1)
    later = [asyncio.create_task(shared.read("k", ask)) for _ in range(3)]
    await asyncio.sleep(0)
    gates[0].set()
    assert 0 == await leader
    await until(lambda: len(begun) == 2)
    # It reads for two more, who ask again among themselves when it leaves.
    later[0].cancel()
    for gate in gates:
        gate.set()
    assert [2, 2] == list(await asyncio.gather(*later[1:]))

    async def fail() -> int:
        raise ConnectionError

    outcomes = await asyncio.gather(*(shared.read("f", fail) for _ in range(3)), return_exceptions=True)
    assert [ConnectionError] * 3 == [type(outcome) for outcome in outcomes]
