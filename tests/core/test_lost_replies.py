"""The store commits and its reply is lost, the store rejects one item, somebody holds a row, the store freezes.

Nothing acknowledged is lost, nothing is done twice, and whoever cannot be served hears so in bounded time."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import pytest

from placet.context import Context
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import wait_action
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import PlacetError, StoreUnavailable
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from tests import postgres
from tests.core.kernels import ALICE, only_action, open_kernel, run, states, until
from tests.core.workshop import Workshop
from tests.postgres import Database
from tests.store.support import frozen

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "3"))


class Lossy:
    """A session whose statements are carried out, while `lose` decides which replies never arrive."""

    def __init__(self, real: Any, lose: Callable[[str], bool]) -> None:
        self._real = real
        self._lose = lose

    async def fetch(self, sql: str, *arguments: Any, timeout: float) -> Any:  # noqa: ASYNC109
        found = await self._real.fetch(sql, *arguments, timeout=timeout)
        if self._lose("".join(str(argument) for argument in arguments)):
            self._real.terminate()
            raise ConnectionResetError("the reply is lost")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def make_lossy(kernel: Kernel, lose: Callable[[str], bool]) -> None:
    """From the next connection on, which is at once."""
    connection = kernel.journal.writer._connection
    real_connect = connection._connect

    async def connect() -> Any:
        return Lossy(await real_connect(), lose)

    connection._connect = connect
    if connection.current is not None:
        connection.current.terminate()


def once(text: str) -> Callable[[str], bool]:
    """Lose the reply to the first flush that says so."""
    left = [1]

    def lose(arguments: str) -> bool:
        if text in arguments and left:
            left.pop()
            return True
        return False

    return lose


@pytest.fixture
def shop() -> Workshop:
    shop = Workshop()
    shop.gate.set()
    return shop


async def age(kernel: Kernel) -> None:
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update actions set start_time = start_time - interval '1 minute'")


async def sequences(kernel: Kernel, action_id: str) -> list[tuple[int, str]]:
    found = watch_action(kernel.journal, ALICE, action_id, "")
    return [(e.sequence, e.type.value) async for e in found if isinstance(e, Event) and e.sequence]


@pytest.mark.both_servers
async def test_an_admission_whose_reply_is_lost_runs_once_when_it_is_sent_again(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, once('"key_digest"'))
        with pytest.raises(StoreUnavailable):
            await run(kernel, "work.unsafe", {}, "k")
        assert ([], ["RUNNING"]) == (shop.attempts, await states(kernel))
        await age(kernel)
        again = asyncio.create_task(run(kernel, "work.unsafe", {}, "k"))
        assert 1 == await release_forgotten(kernel.engine)
        done = await again
        life = await sequences(kernel, done.action.action_id)
    assert 1 == shop.effects
    assert ["admitted", "requeued", "attempt_started", "settled"] == [name for _, name in life]


@pytest.mark.both_servers
@pytest.mark.parametrize("capability", ["work.read", "work.idempotent", "work.unsafe"])
async def test_a_result_whose_reply_is_lost_is_the_result(
    database: Database, shop: Workshop, capability: str
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, once('"settled"'))
        done = await run(kernel, capability, {}, "k")
        life = await sequences(kernel, done.action.action_id)
    assert ([(1, "admitted"), (2, "settled")], 1) == (life, shop.effects)
    assert 2 == done.action.sequence


@pytest.mark.both_servers
async def test_a_retry_whose_reply_is_lost_is_tried_again_once(database: Database, shop: Workshop) -> None:
    async def fails_first(context: Context) -> str:
        if context.attempt == 1:
            raise ConnectionError
        return "done"

    shop.script = fails_first
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, once('"requeued"'))
        done = await run(kernel, "work.idempotent", {}, "k")
        life = await sequences(kernel, done.action.action_id)
    assert [1, 2] == shop.attempts
    assert ["admitted", "requeued", "attempt_started", "settled"] == [name for _, name in life]


async def test_a_mark_whose_reply_is_lost_still_comes_before_the_effect(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, once('"effect_started"'))
        done = await run(kernel, "work.unsafe_marked", {}, "k")
        life = await sequences(kernel, done.action.action_id)
    assert (ActionState.SUCCEEDED, 1) == (done.action.state, shop.effects)
    assert list(range(1, len(life) + 1)) == [number for number, _ in life]
    assert "effect_started" == life[1][1]


async def test_an_ambiguous_ending_whose_reply_is_lost_is_told_as_it_is(
    database: Database, shop: Workshop
) -> None:
    async def breaks(context: Context) -> None:
        raise ConnectionError

    shop.script = breaks
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, once('"ambiguous"'))
        with pytest.raises(PlacetError) as raised:
            await run(kernel, "work.unsafe", {}, "k")
        stored = await only_action(kernel)
    assert ("EFFECT_AMBIGUOUS", ActionState.AMBIGUOUS, 2) == (
        raised.value.reason,
        stored.state,
        stored.sequence,
    )


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_replies_lost_at_random_lose_and_repeat_nothing(database: Database, seed: int) -> None:
    shop, chance = Workshop(), random.Random(seed)
    shop.gate.set()
    effects: dict[str, int] = {}

    async def count(context: Context) -> str:
        effects[context.action_id] = effects.get(context.action_id, 0) + 1
        return context.action_id

    shop.script = count
    async with open_kernel(database.dsn, shop.app) as kernel:
        make_lossy(kernel, lambda _: chance.random() < 0.3)
        ended: list[Any] = []
        for wave in range(15):
            calls = [run(kernel, "work.unsafe", {}, f"k{wave}.{number}") for number in range(4)]
            ended += await asyncio.gather(*calls, return_exceptions=True)
        refused = [error for error in ended if isinstance(error, BaseException)]
        assert all(isinstance(error, StoreUnavailable) for error in refused)
        told = {done.action.action_id for done in ended if not isinstance(done, BaseException)}
        async with kernel.journal.pool.connection() as connection:
            rows = await connection.fetch("select action_id::text, state, attempt from actions")
    stored = {row["action_id"]: row["state"] for row in rows}
    assert {"SUCCEEDED"} == {stored[action_id] for action_id in told}
    assert {1} == set(effects.values())
    assert told == set(effects)
    assert 0 < len(told) < 60


@pytest.mark.both_servers
async def test_an_item_that_the_store_rejects_fails_alone(database: Database, shop: Workshop) -> None:
    poison = Caller(tenant="acme", subject="nul\x00", scopes=frozenset({"*"}))
    async with open_kernel(database.dsn, shop.app) as kernel:
        good = [run(kernel, "work.unsafe", {}, f"k{number}") for number in range(20)]
        bad = run(kernel, "work.unsafe", {}, "bad", caller=poison)
        *ended, rejected = await asyncio.gather(*good, bad, return_exceptions=True)
        assert ["SUCCEEDED"] * 20 == await states(kernel)
    assert [] == [error for error in ended if isinstance(error, BaseException)]
    assert isinstance(rejected, asyncpg.PostgresError)


@pytest.mark.both_servers
async def test_a_session_cut_in_the_middle_of_a_flush_costs_no_result(
    database: Database, shop: Workshop
) -> None:
    shop.gate.clear()
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.unsafe", {}, "k"))
        await shop.began.wait()
        async with kernel.journal.pool.tx() as holder:
            await holder.execute("select from actions for update")
            shop.gate.set()
            async with kernel.journal.pool.connection() as other:
                await cut_when_waiting(other)
        done = await call
        life = await sequences(kernel, done.action.action_id)
    assert (["admitted", "settled"], 1) == ([name for _, name in life], shop.effects)


async def cut_when_waiting(connection: Any) -> None:
    """Ends the one session that waits for a lock."""
    cut = False
    while not cut:
        cut = await connection.fetchval(
            "select bool_or(pg_terminate_backend(pid)) from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock'"
        )


async def test_a_row_that_somebody_holds_waits_alone(database: Database, shop: Workshop) -> None:
    shop.gate.clear()
    async with open_kernel(database.dsn, shop.app) as kernel:
        held = asyncio.create_task(run(kernel, "work.unsafe", {}, "held", time_left_seconds=None))
        await shop.began.wait()
        session = await asyncpg.connect(database.dsn)
        holding = session.transaction()
        await holding.start()
        await session.execute("select from actions for update")
        shop.gate.set()
        begin = time.monotonic()
        await asyncio.gather(
            *(run(kernel, "work.unsafe", {}, f"k{n}", time_left_seconds=30.0) for n in range(8))
        )
        took = time.monotonic() - begin
        assert not held.done()
        await holding.rollback()
        await session.close()
        done = await asyncio.wait_for(held, 10)
    assert (ActionState.SUCCEEDED, 9) == (done.action.state, shop.effects)
    assert took < 20


@pytest.fixture
def own_database() -> Iterator[Database]:
    """On a server of its own, which may be frozen."""
    with postgres.cluster("embedded") as cluster, cluster.database() as database:
        yield database


async def test_a_frozen_store_costs_callers_bounded_time_and_results_nothing(
    own_database: Database, shop: Workshop
) -> None:
    shop.gate.clear()
    async with open_kernel(own_database.dsn, shop.app) as kernel:
        calls = [
            asyncio.create_task(run(kernel, "work.unsafe", {}, f"k{n}", time_left_seconds=None))
            for n in range(10)
        ]
        await until(lambda: len(shop.attempts) == 10)
        with frozen(own_database.server):
            shop.gate.set()
            await until(lambda: shop.effects == 10)
            begin = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await run(kernel, "work.unsafe", {}, "new", time_left_seconds=None)
            with pytest.raises(StoreUnavailable):
                await run(kernel, "work.read", {}, time_left_seconds=None)
            took = time.monotonic() - begin
            assert not any(call.done() for call in calls)
        done = await asyncio.wait_for(asyncio.gather(*calls), 30)
        ended = [await stored(kernel, executed.action) for executed in done]
    assert took < 15
    assert ({ActionState.SUCCEEDED}, 10) == ({action.state for action in ended}, shop.effects)


async def stored(kernel: Kernel, action: Action) -> Action:
    async with kernel.journal.pool.connection() as connection:
        found = await actions.get(connection, "acme", action.action_id, full=True)
    assert found is not None
    return found


async def test_a_handler_that_speaks_while_the_store_is_frozen_is_heard_afterwards(
    own_database: Database, shop: Workshop
) -> None:
    speaking = asyncio.Event()

    async def speaks(context: Context) -> str:
        await shop.gate.wait()
        speaking.set()
        await context.chunk("through the ice")
        return "done"

    shop.gate.clear()
    shop.script = speaks
    async with open_kernel(own_database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}, time_left_seconds=None))
        await shop.began.wait()
        with frozen(own_database.server):
            shop.gate.set()
            await speaking.wait()
            await asyncio.sleep(2.5)
        done = await asyncio.wait_for(call, 30)
        end = await wait_action(kernel.journal, ALICE, done.action.action_id, 1)
        found = [e async for e in watch_action(kernel.journal, ALICE, end.action_id, "")]
    assert ["admitted", "chunk", "settled"] == [e.type for e in found if isinstance(e, Event)]


async def test_a_writer_that_has_ended_takes_nothing_more(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        await run(kernel, "work.read", {})
        kernel.journal.writer.close()
        await until(lambda: kernel.journal.writer._ended)
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(run(kernel, "work.read", {}, time_left_seconds=None), 5)


async def test_the_writer_goes_on_after_a_batch_of_admissions_that_nobody_wants_any_more(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        writer = kernel.journal.writer
        row: Any = {"action_id": "1", "input": "", "labels": ""}
        for write in (writer.admit, writer.submit, writer.admit_child):
            given_up = write(row)
            given_up.cancel()
            await until(lambda: not writer._queue)
            assert ActionState.SUCCEEDED is (await run(kernel, "work.read", {})).action.state
