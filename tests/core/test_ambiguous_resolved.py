"""What may have happened is found, and a person's verdict ends it: once, with evidence, and never against the truth
that the lost attempt still tells.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from placet.context import Context
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.core.recovery.rescue import rescue
from placet_server.core.recovery.resolve import (
    GRACE_SECONDS,
    Finding,
    ResolveCommand,
    list_ambiguous,
    resolve_ambiguous,
)
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.ending_errors import EffectAmbiguous, HandlerFailed
from placet_server.model.errors import MalformedJson, MalformedRequest, NotFound, StaleDigest, StateConflict
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, RetryAdvice
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
OVER = timedelta(seconds=3600 + GRACE_SECONDS)
CLASSES = ("idempotent", "reconcilable", "unsafe")
DONE, NOT_DONE = Finding.DONE, Finding.NOT_DONE
AMBIGUOUS, SUCCEEDED, FAILED = ActionState.AMBIGUOUS, ActionState.SUCCEEDED, ActionState.FAILED


class Bench(Workshop):
    """One attempt only; its handlers break off and say nothing, until they are repaired."""

    def __init__(self, **options: Any) -> None:
        super().__init__(attempts_max=1, **options)
        self.break_off()

    def break_off(self) -> None:
        async def fail(context: Context) -> Any:
            raise ConnectionResetError

        self.script = fail

    def repair(self) -> None:
        self.script = None
        self.gate.set()


def command(action_id: str, finding: Finding = NOT_DONE, **members: Any) -> ResolveCommand:
    members = {"reason": "asked the bank", "evidence": "ticket 7"} | members
    if finding is DONE:
        members.setdefault("output_json", '{"order": "9"}')
    return ResolveCommand(action_id=action_id, finding=finding, **members)


async def resolve(
    kernel: Kernel, action_id: str, finding: Finding = NOT_DONE, *, caller: Caller = ALICE, **members: Any
) -> Action:
    async def capability_of(action: Action) -> Capability:
        entry = await kernel.catalog.get_capability(
            action.requester.tenant, action.capability, action.version
        )
        return entry.stored.capability

    return await resolve_ambiguous(
        kernel.engine, caller, command(action_id, finding, **members), capability_of
    )


async def doubt(kernel: Kernel, effect_class: str = "unsafe", key: str = "k", **options: Any) -> str:
    """Submits an action whose only attempt breaks off."""
    name = f"work.{effect_class}"
    action_id = (await put(kernel, name, {}, key, **options)).action.action_id
    await work_off(kernel)
    assert AMBIGUOUS is (await read(kernel, action_id)).state
    return action_id


async def listed(kernel: Kernel, tenant: str | None = "acme", **members: Any) -> list[str]:
    query: dict[str, Any] = {"capabilities": (), "page_size": 10} | members
    return [each.action.action_id for each in await list_ambiguous(kernel.journal, tenant=tenant, **query)]


async def events_of(kernel: Kernel, action_id: str) -> list[tuple[str, dict[str, Any]]]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select type, body from events where action_id = $1 order by sequence", action_id
        )
    return [(row["type"], orjson.loads(row["body"])) for row in rows]


async def ends_of(kernel: Kernel, action_id: str) -> list[dict[str, Any]]:
    return [body for type_, body in await events_of(kernel, action_id) if type_ == "settled"]


@pytest.mark.parametrize("effect_class", CLASSES)
async def test_what_was_done_succeeds_with_the_output_that_is_told(
    database: Database, effect_class: str
) -> None:
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE) as kernel:
        action_id = await doubt(kernel, effect_class)
        assert [action_id] == await listed(kernel)
        done = await resolve(kernel, action_id, DONE, output_json=' {"order" : "9"} ')
        assert (SUCCEEDED, EffectState.DONE, '{"order":"9"}') == (done.state, done.effect, done.output_json)
        assert done == await read(kernel, action_id)
        assert [] == await listed(kernel)
        again = await run(kernel, f"work.{effect_class}", {}, "k")
        assert (action_id, {"order": "9"}) == (again.action.action_id, output(again.action))
        (end,) = await ends_of(kernel, action_id)
        told = {"evidence": "ticket 7", "reason": "asked the bank", "requester": "alice", "verdict": "DONE"}
        assert told == end["resolution"]


@pytest.mark.parametrize("effect_class", CLASSES)
async def test_what_was_not_done_fails_keeps_its_key_and_is_a_dead_letter(
    database: Database, effect_class: str
) -> None:
    shop, clock = Bench(), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel, effect_class)
        clock.advance(OVER)
        failed = await resolve(kernel, action_id, request="r")
        assert (FAILED, EffectState.NOT_DONE, "not_done", "asked the bank", False) == (
            failed.state,
            failed.effect,
            failed.failure_code,
            failed.message,
            failed.key_released,
        )
        assert RetryAdvice.NEW_KEY is outcome_of(failed).retry_advice
        assert [action_id] == (await places(kernel))["dead_letters"]
        with pytest.raises(HandlerFailed):
            await run(kernel, f"work.{effect_class}", {}, "k")
        (end,) = await ends_of(kernel, action_id)
        assert "NOT_DONE" == end["resolution"]["verdict"]

        async def allowed(action: Action) -> int:
            return 1

        shop.repair()
        await redrive(kernel.journal, ALICE, RedriveCommand(action_ids=(action_id,)), allowed)
        # Whoever has said it, and never heard that it was heard, may say it again; another request is another verdict.
        assert ActionState.QUEUED is (await resolve(kernel, action_id, request="r")).state
        with pytest.raises(StateConflict):
            await resolve(kernel, action_id, request="s")
        await work_off(kernel)
        assert (SUCCEEDED, 1) == ((await read(kernel, action_id)).state, shop.effects)


async def test_what_was_executed_and_not_done_is_no_dead_letter(database: Database) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench().app, clock=clock) as kernel:
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.unsafe", {}, "k")
        (action_id,) = await listed(kernel)
        clock.advance(OVER)
        assert FAILED is (await resolve(kernel, action_id)).state
        assert [] == (await places(kernel))["dead_letters"]


@pytest.mark.parametrize("finding", Finding)
async def test_what_somebody_wanted_cancelled_is_so_only_if_nothing_was_done(
    database: Database, finding: Finding
) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        await cancel_action(kernel.engine, ALICE, action_id, "not wanted")
        clock.advance(OVER)
        ended = await resolve(kernel, action_id, finding)
        wanted = SUCCEEDED if finding is DONE else ActionState.CANCELLED
        assert wanted is ended.state
        assert [] == (await places(kernel))["dead_letters"]


async def test_nothing_is_called_not_done_while_the_attempt_may_act(database: Database) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        action = await read(kernel, action_id)
        assert action.deadline_us is not None
        over = datetime.fromtimestamp(action.deadline_us / 1e6, UTC) + timedelta(seconds=GRACE_SECONDS)
        clock.advance(over - START - timedelta(milliseconds=1))
        (found,) = await list_ambiguous(kernel.journal, tenant="acme", capabilities=(), page_size=10)
        assert (True, int(START.timestamp() * 1e6)) == (found.attempt_may_act, found.since_time_us)
        with pytest.raises(StateConflict) as refused:
            await resolve(kernel, action_id)
        assert ("AMBIGUOUS", "attempt_may_act") == (refused.value.state, refused.value.rule)
        # What was done stays done, whoever else says so.
        await resolve(kernel, action_id, DONE, validate_only=True)
        assert action == await read(kernel, action_id)
        clock.advance(timedelta(milliseconds=1))
        (found,) = await list_ambiguous(kernel.journal, tenant="acme", capabilities=(), page_size=10)
        assert not found.attempt_may_act
        assert FAILED is (await resolve(kernel, action_id)).state


@pytest.mark.parametrize("finding", Finding)
async def test_a_look_makes_every_check_and_writes_nothing(database: Database, finding: Finding) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        clock.advance(OVER)
        before = await read(kernel, action_id), await events_of(kernel, action_id)
        assert before[0] == await resolve(kernel, action_id, finding, validate_only=True)
        with pytest.raises(StaleDigest):
            await resolve(kernel, action_id, finding, validate_only=True, expected_attempt=2)
        assert before == (await read(kernel, action_id), await events_of(kernel, action_id))
        await resolve(kernel, action_id, finding, expected_attempt=1)


async def test_an_output_that_the_contract_forbids_is_refused(database: Database) -> None:
    shop = Bench(output_schema={"type": "object", "required": ["order"]})
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await doubt(kernel)
        for wrong, error in (('{"odd":1}', MalformedRequest), ("{", MalformedJson)):
            with pytest.raises(error):
                await resolve(kernel, action_id, DONE, output_json=wrong)
        for member in ("reason", "evidence"):
            wrong_text: dict[str, Any] = {member: "a\x00b"}
            with pytest.raises(MalformedRequest):
                await resolve(kernel, action_id, DONE, **wrong_text)
        assert AMBIGUOUS is (await read(kernel, action_id)).state


@pytest.mark.parametrize("finding", Finding)
async def test_a_resend_returns_what_it_did_and_another_verdict_is_refused(
    database: Database, finding: Finding
) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        clock.advance(OVER)
        ended = await resolve(kernel, action_id, finding)
        assert ended == await resolve(kernel, action_id, finding)
        assert ended == await resolve(kernel, action_id, finding, validate_only=True)
        others: tuple[dict[str, Any], ...] = (
            {"finding": NOT_DONE if finding is DONE else DONE},
            {"caller": BOB},
            {"reason": "another"},
            {"evidence": "another"},
        )
        for changed in others:
            with pytest.raises(StateConflict) as refused:
                await resolve(kernel, action_id, **({"finding": finding} | changed))
            assert (ended.state.value, "not_ambiguous") == (refused.value.state, refused.value.rule)
        if finding is DONE:
            with pytest.raises(StateConflict):
                await resolve(kernel, action_id, DONE, output_json='{"order":"8"}')
        assert ended == await read(kernel, action_id)


async def test_only_what_is_ambiguous_and_ones_own_is_resolved(database: Database) -> None:
    shop = Bench()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        waiting = (await put(kernel, "work.unsafe", {}, "w")).action.action_id
        with pytest.raises(StateConflict) as refused:
            await resolve(kernel, waiting, DONE)
        assert ("QUEUED", "not_ambiguous") == (refused.value.state, refused.value.rule)
        await work_off(kernel)
        assert [waiting] == await listed(kernel)
        for caller, action_id in ((EVE, waiting), (ALICE, "00000000-0000-7000-8000-000000000000")):
            with pytest.raises(NotFound):
                await resolve(kernel, action_id, DONE, caller=caller)
        assert [] == await listed(kernel, EVE.tenant)
        shop.repair()
        settled = (await run(kernel, "work.unsafe", {}, "s")).action.action_id
        with pytest.raises(StateConflict):
            await resolve(kernel, settled, DONE)


@pytest.mark.both_servers
async def test_pages_go_from_the_oldest_on_within_what_is_asked_for(database: Database) -> None:
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE) as kernel:
        ids = [await doubt(kernel, c, f"{c}{n}") for n in range(2) for c in ("unsafe", "reconcilable")]
        theirs = (await put(kernel, "work.unsafe", {}, "k", caller=EVE)).action.action_id
        await work_off(kernel)
        assert ids == await listed(kernel)
        assert ids[:3] == await listed(kernel, page_size=3)
        assert ids[3:] == await listed(kernel, page_size=3, after=ids[2])
        assert ids[::2] == await listed(kernel, capabilities=("work.unsafe",))
        assert [*ids, theirs] == await listed(kernel, None)
        assert [theirs] == await listed(kernel, None, after=ids[3])
        assert [] == await listed(kernel, capabilities=("%",))
        with pytest.raises(MalformedRequest):
            await listed(kernel, capabilities=("\x00",))


async def given_up(database: Database, old: Kernel, shop: Workshop, survivor: Kernel) -> str:
    """What the old server runs on, unknowing, and the survivor calls ambiguous."""
    action_id = (await put(old, "work.unsafe", {}, "k")).action.action_id
    await dispatch(old)
    await shop.began.wait()
    await declare_dead(old)
    await rescue(survivor.journal)
    assert AMBIGUOUS is (await read(survivor, action_id)).state
    return action_id


async def finish(old: Kernel, shop: Workshop) -> None:
    shop.gate.set()
    await until(lambda: not len(old.engine.runs))


@pytest.mark.parametrize("finding", Finding)
async def test_a_late_answer_finds_the_verdict_and_changes_nothing(
    database: Database, finding: Finding
) -> None:
    shop, clock = Workshop(), FixedClock(START)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as old,
        open_kernel(database.dsn, Workshop().app, clock=clock) as survivor,
    ):
        action_id = await given_up(database, old, shop, survivor)
        clock.advance(OVER)
        ended = await resolve(survivor, action_id, finding)
        await finish(old, shop)
        assert ended == await read(survivor, action_id)
        assert 1 == len(await ends_of(survivor, action_id))


async def test_a_verdict_after_the_late_answer_is_refused(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as old,
        open_kernel(database.dsn, Workshop().app) as survivor,
    ):
        action_id = await given_up(database, old, shop, survivor)
        await finish(old, shop)
        for finding in Finding:
            with pytest.raises(StateConflict) as refused:
                await resolve(survivor, action_id, finding)
            assert ("SUCCEEDED", "not_ambiguous") == (refused.value.state, refused.value.rule)
        assert {"order": "1"} == output(await read(survivor, action_id))


@pytest.mark.both_servers
@pytest.mark.parametrize("round_", range(8))
async def test_the_late_answer_and_verdicts_at_once_make_one_end(database: Database, round_: int) -> None:
    shop, clock = Workshop(), FixedClock(START)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as old,
        open_kernel(database.dsn, Workshop().app, clock=clock) as survivor,
    ):
        action_id = await given_up(database, old, shop, survivor)
        clock.advance(OVER)

        async def answer() -> None:
            await asyncio.sleep(round_ % 4 / 1000)
            await finish(old, shop)

        verdicts = [
            resolve(kernel, action_id, finding, caller=caller)
            for kernel in (old, survivor)
            for caller in (ALICE, BOB)
            for finding in Finding
        ]
        cancel = cancel_action(survivor.engine, ALICE, action_id, "no")
        _, _, *told = await asyncio.gather(answer(), cancel, *verdicts, return_exceptions=True)
        stored = await read(survivor, action_id)
        (end,) = await ends_of(survivor, action_id)
        assert stored.state.value == end["kind"]
        won = [each for each in told if isinstance(each, Action)]
        lost = [each for each in told if isinstance(each, StateConflict)]
        assert len(told) == len(won) + len(lost)
        # The same verdict of the same person, sent through both servers, may win twice.
        assert len(won) in ((1, 2) if "resolution" in end else (0,))
        assert all(each == stored for each in won)


async def test_whoever_waits_learns_of_the_verdict(database: Database) -> None:
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE) as kernel:
        action_id = await doubt(kernel)
        subscription = kernel.journal.hub.subscribe(action_id)
        await resolve(kernel, action_id, DONE)
        await asyncio.wait_for(kernel.journal.hub.wait(action_id, subscription, 30.0), 5.0)
        kernel.journal.hub.unsubscribe(action_id, subscription)


async def test_a_caller_that_goes_away_leaves_a_whole_verdict(database: Database) -> None:
    async with open_kernel(database.dsn, Bench().app, queue=QUEUE) as kernel:
        action_id = await doubt(kernel)
        for _ in range(20):
            asked = kernel.engine.supervisor.start(resolve(kernel, action_id, DONE))
            await asyncio.sleep(0.002)
            asked.cancel()
            await asyncio.wait([asked])
        assert SUCCEEDED is (await resolve(kernel, action_id, DONE)).state
        assert 1 == len(await ends_of(kernel, action_id))
