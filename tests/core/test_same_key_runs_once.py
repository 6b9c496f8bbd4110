"""One key, one effect: repeats, races, other input, released and expired keys."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.app import App
from placet.failure import Failure
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.model.action import OnDuplicate
from placet_server.model.ending_errors import HandlerFailed
from placet_server.model.errors import Overloaded, StoreUnavailable
from placet_server.model.gate_errors import DuplicateRefused, IdempotencyConflict
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, RetryAdvice
from placet_server.store.batch_item import Admission, Written
from placet_server.store.clock import FixedClock
from tests.core.kernels import BOB, EVE, open_kernel, output, run, until
from tests.postgres import Database


class Shop:
    """Counts what its handlers did."""

    def __init__(self) -> None:
        self.effects = 0
        self.failures: list[Failure] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.app = App("shop")

        @self.app.tool("shop.refund", "idempotent")
        async def refund(order: str) -> dict[str, str]:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop()
            self.effects += 1
            return {"refunded": order}


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_the_same_key_and_input_return_the_stored_output(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        first = await run(kernel, "shop.refund", {"order": "1"}, "k")
        again = await run(kernel, "shop.refund", {"order": "1"}, "k")
    assert (1, False, True) == (shop.effects, first.attached, again.attached)
    assert first.action.action_id == again.action.action_id
    assert {"refunded": "1"} == output(again.action)
    assert (ActionState.SUCCEEDED, EffectState.DONE) == (again.action.state, again.action.effect)


@pytest.mark.both_servers
async def test_fifty_concurrent_calls_under_one_key_run_once(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await asyncio.gather(*(run(kernel, "shop.refund", {"order": "1"}, "k") for _ in range(50)))
    assert 1 == shop.effects
    assert 1 == len({executed.action.action_id for executed in done})
    assert 49 == sum(executed.attached for executed in done)


@pytest.mark.both_servers
async def test_two_replicas_and_one_key_run_once(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        calls = [run(kernel, "shop.refund", {"order": "1"}, "k") for kernel in (one, two) for _ in range(10)]
        done = await asyncio.gather(*calls)
    assert 1 == shop.effects
    assert 1 == len({executed.action.action_id for executed in done})


async def test_other_input_under_a_known_key_is_a_conflict_and_changes_nothing(
    database: Database, shop: Shop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        first = await run(kernel, "shop.refund", {"order": "1"}, "k")
        with pytest.raises(IdempotencyConflict) as conflict:
            await run(kernel, "shop.refund", {"order": "2"}, "k")
        again = await run(kernel, "shop.refund", {"order": "1"}, "k")
    assert first.action.action_id == conflict.value.action_id
    assert (1, first.action.sequence) == (shop.effects, again.action.sequence)


async def test_keys_belong_to_their_subject_and_tenant(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        ids = set()
        for caller in (None, BOB, EVE):
            options: dict[str, Any] = {} if caller is None else {"caller": caller}
            ids.add((await run(kernel, "shop.refund", {"order": "1"}, "k", **options)).action.action_id)
    assert (3, 3) == (len(ids), shop.effects)


async def test_a_duplicate_can_be_refused(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        first = await run(kernel, "shop.refund", {"order": "1"}, "k")
        with pytest.raises(DuplicateRefused) as refused:
            await run(kernel, "shop.refund", {"order": "1"}, "k", on_duplicate=OnDuplicate.REFUSE)
    assert first.action.action_id == refused.value.action_id


async def test_a_temporary_failure_that_did_nothing_frees_the_key_for_a_successor(
    database: Database, shop: Shop
) -> None:
    shop.failures.append(Failure("busy", category="temporary", effect="not_done", retry_delay=0.5))
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(HandlerFailed) as failed:
            await run(kernel, "shop.refund", {"order": "1"}, "k")
        again = await run(kernel, "shop.refund", {"order": "1"}, "k")
    outcome = failed.value.outcome
    assert outcome is not None
    assert ("UNAVAILABLE", RetryAdvice.SAME_KEY, 0.5) == (
        failed.value.code,
        outcome.retry_advice,
        outcome.retry_delay_seconds,
    )
    assert EffectState.NOT_DONE == outcome.effect
    assert (outcome.action_id, False, 1) == (again.action.predecessor_id, again.attached, shop.effects)


async def test_a_final_failure_is_what_the_key_returns_from_then_on(database: Database, shop: Shop) -> None:
    shop.failures.append(Failure("card_declined", category="permanent", effect="not_done"))
    async with open_kernel(database.dsn, shop.app) as kernel:
        outcomes = []
        for _ in range(2):
            with pytest.raises(HandlerFailed) as failed:
                await run(kernel, "shop.refund", {"order": "1"}, "k")
            outcomes.append(failed.value.outcome)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] is not None
    assert (RetryAdvice.NEW_KEY, "card_declined") == (outcomes[0].retry_advice, outcomes[0].failure_code)
    assert 0 == shop.effects


async def test_a_key_is_free_again_after_its_time(database: Database) -> None:
    app, effects = App("shop"), []

    @app.tool("shop.refund", "idempotent", key_ttl=timedelta(hours=1))
    async def refund(order: str) -> str:
        effects.append(order)
        return order

    clock = FixedClock(datetime.now(UTC))
    async with open_kernel(database.dsn, app, clock=clock) as kernel:
        first = await run(kernel, "shop.refund", {"order": "1"}, "k")
        clock.advance(timedelta(minutes=59))
        again = await run(kernel, "shop.refund", {"order": "1"}, "k")
        clock.advance(timedelta(minutes=2))
        later = await run(kernel, "shop.refund", {"order": "2"}, "k")
    assert (True, False) == (again.attached, later.attached)
    assert ["1", "2"] == effects
    assert first.action.action_id == later.action.predecessor_id


async def test_who_comes_back_needs_no_thread(database: Database) -> None:
    """Else a caller who was cut off is told OVERLOADED until the grace has passed, and what he wants is cancelled."""
    app = App("plain")
    release, entered = threading.Event(), threading.Event()

    @app.tool("plain.block", "unsafe")
    def block(order: str) -> str:
        entered.set()
        release.wait(20)
        return order

    async with open_kernel(database.dsn, app, settings=ExecutionSettings(handler_threads_max=1)) as kernel:
        lost = asyncio.create_task(run(kernel, "plain.block", {"order": "1"}, "k"))
        try:
            await until(entered.is_set)
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
            with pytest.raises(Overloaded):
                await run(kernel, "plain.block", {"order": "2"}, "new")
            with pytest.raises(IdempotencyConflict):
                await run(kernel, "plain.block", {"order": "2"}, "k")
            back = asyncio.create_task(run(kernel, "plain.block", {"order": "1"}, "k"))
            await asyncio.sleep(0.1)
        finally:
            release.set()
        done = await back
    assert (True, "1") == (done.attached, output(done.action))


@pytest.mark.both_servers
async def test_a_released_key_is_never_free_while_it_changes_hands(database: Database, shop: Shop) -> None:
    shop.failures.append(Failure("busy", category="temporary", effect="not_done"))
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(HandlerFailed):
            await run(kernel, "shop.refund", {"order": "1"}, "k")
        real = kernel.journal.writer.admit
        kernel.journal.writer.admit = _lost  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await run(kernel, "shop.refund", {"order": "1"}, "k")
        kernel.journal.writer.admit = real  # type: ignore[method-assign]
        with pytest.raises(IdempotencyConflict):
            await run(kernel, "shop.refund", {"order": "2"}, "k")
        taken = await run(kernel, "shop.refund", {"order": "1"}, "k")
    assert taken.action.predecessor_id is not None


@pytest.mark.both_servers
async def test_thirty_callers_on_two_replicas_make_one_successor(database: Database, shop: Shop) -> None:
    shop.failures.append(Failure("busy", category="temporary", effect="not_done"))
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        with pytest.raises(HandlerFailed) as failed:
            await run(one, "shop.refund", {"order": "1"}, "k")
        calls = [run(kernel, "shop.refund", {"order": "1"}, "k") for kernel in (one, two) for _ in range(15)]
        done = await asyncio.gather(*calls)
    outcome = failed.value.outcome
    assert outcome is not None
    assert {outcome.action_id} == {executed.action.predecessor_id for executed in done}
    assert (1, 1) == (shop.effects, len({executed.action.action_id for executed in done}))


def _lost(admission: Admission) -> asyncio.Future[Written | None]:
    """The store went away before it saw anything."""
    future: asyncio.Future[Written | None] = asyncio.get_running_loop().create_future()
    future.set_exception(StoreUnavailable())
    return future
