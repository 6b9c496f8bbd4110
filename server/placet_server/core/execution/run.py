"""One attempt, from acquiring the action to a durable verdict, in a task of its own.

The task belongs to nobody who waits for it, so a lost connection, an expired deadline or a shutdown can end
the waiting, but never the settling. The handler runs inside this very task: stopping it cancels the task
while, and only while, the handler is being awaited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace

from placet_server.core.execution.attempt import Attempt, LeaseLost
from placet_server.core.execution.cancel import cancel_below_for_sure
from placet_server.core.execution.ending import (
    UNWANTED,
    Ending,
    Parked,
    Postponed,
    Raised,
    StopCause,
    Stopped,
)
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.invoke import invoke
from placet_server.core.execution.judgement import judge
from placet_server.core.execution.runs import Run
from placet_server.core.execution.threads import ThreadHolding
from placet_server.core.publication.close import end_left_over
from placet_server.core.publication.lane import said_so_far
from placet_server.core.publication.settle import read_for_sure, settle
from placet_server.model.action import Action
from placet_server.model.errors import PlacetError
from placet_server.model.lifecycle import GOES_ON, LATE, TRANSITIONS, ActionState

_log = logging.getLogger(__name__)

Acquire = Callable[[], Awaitable[Action | None]]


def start_run(engine: Engine, run: Run, acquire: Acquire, context: Context | None = None) -> None:
    """Begins at once. `acquire` writes the lease: it returns the running action, None if somebody else has
    it, or raises. `context`: see `Supervisor.start`.

    Raises Overloaded, before anything is written, when a plain handler finds no thread.
    """
    if not run.work.tool.is_async:
        engine.threads.reserve()
        run.holdings = (ThreadHolding(engine.threads), *run.holdings)
    engine.runs.add(run)
    run.task = engine.supervisor.start(_live(engine, run, acquire), context)


async def _live(engine: Engine, run: Run, acquire: Acquire) -> None:
    begin = time.monotonic()
    settled: Action | None = None
    try:
        action = run.action = await acquire()
        if action is None:
            run.finish(None)
            return
        if run.work.on_admitted is not None:
            run.work.on_admitted(action.action_id)
        engine.journal.boundary.reached("intent_persisted", action.capability)
        settled = await _attempt(engine, run, action)
        engine.journal.boundary.reached("result_persisted", action.capability)
        engine.observer.settled(settled, time.monotonic() - begin)
        if settled.approval_id is not None and not run.handler_was_entered:
            await end_left_over(engine.journal, settled)
        run.finish(settled)
    except PlacetError as error:
        # It would hold this frame, and the run, which holds it.
        run.finish(None, error.with_traceback(None))
    except BaseException as fault:
        # The row stays as it is: what is running in the store but not in memory is found by its owner, or
        # by its rescuer.
        run.finish(run.action, fault if run.action is None and isinstance(fault, Exception) else None)
        if not isinstance(fault, asyncio.CancelledError):
            _log.error("a run failed", exc_info=fault, extra={"action_id": run.action_id})
        raise
    finally:
        engine.runs.remove(run)
        if settled is None and run.handler_was_entered and run.action is not None:
            engine.runs.abandoned.add(run.action.lease_id or "")
        if not run.work.tool.is_async:
            engine.threads.release()


async def _attempt(engine: Engine, run: Run, action: Action) -> Action:
    attempt = Attempt(engine, run)
    if action.cause in GOES_ON:
        attempt.lane_number = await said_so_far(engine.journal, action)
    try:
        if attempt.effect_begun:
            engine.journal.boundary.reached("before_provider_call", action.capability)
        ending = await invoke(engine, attempt)
        if attempt.end():
            await _drain(attempt)
        if attempt.steps is not None and attempt.awaited is not None and not isinstance(ending, Stopped):
            # Whatever else it then did: it was told to begin again.
            ending = Parked(awaited=attempt.awaited, lane_number=attempt.lane_number)
        elif isinstance(ending, Postponed):
            ending = replace(ending, lane_number=attempt.lane_number)
    except LeaseLost:
        settled, own = await _as_stored(engine, action), None
    else:
        if run.stop_cause in UNWANTED and attempt.may_have_children:
            await cancel_below_for_sure(engine, action)
        engine.journal.boundary.reached("provider_response_received", action.capability)
        own = await _settle(engine, run, attempt, ending)
        settled = own or await _as_stored(engine, action)
    if attempt.on_settled is not None:
        attempt.on_settled(own)
    return settled


async def settle_late(engine: Engine, attempt: Attempt, ending: Ending) -> Action | None:
    """The answer of an attempt that was given up without one: it ends what is AMBIGUOUS by its lease, nothing else.
    None: it did not. Not to be cancelled: run it in a task of its own.
    """
    run = attempt.run
    return await _settle_as_stored(engine, _as_known(run, attempt), attempt, ending, run.stop_cause)


async def _drain(attempt: Attempt) -> None:
    """Whatever is wrong with what the handler said must not keep its result from being written."""
    try:
        await attempt.drain()
    except Exception:
        _log.exception("the lane was not stored whole", extra={"action_id": attempt.action.action_id})


async def _settle(engine: Engine, run: Run, attempt: Attempt, ending: Ending) -> Action | None:
    """Judged on what was known at the start, and again if a cancel or a rescue came between. None: somebody else was
    faster.

    What the store rejects for good is settled as what it then is: an ending without an answer.
    """
    known, stop = _as_known(run, attempt), run.stop_cause
    try:
        verdict = judge(known, ending, now_us=attempt.now_us(), stop=stop)
        settled = await settle(engine.journal, known, verdict)
        return settled or await _settle_as_stored(engine, known, attempt, ending, stop)
    except PlacetError:
        raise
    except Exception:
        if isinstance(ending, Raised):
            raise
        _log.exception("an ending cannot be stored", extra={"action_id": run.action_id})
        return await _settle(engine, run, attempt, Raised())


async def _settle_as_stored(
    engine: Engine, known: Action, attempt: Attempt, ending: Ending, stop: StopCause | None
) -> Action | None:
    stored = await _as_stored(engine, known)
    if stored.lease_id != known.lease_id or stored.state not in (ActionState.RUNNING, ActionState.AMBIGUOUS):
        return None
    if isinstance(ending, Parked | Postponed) and stored.cancel_requested_time_us is not None:
        # Its steps are open yet.
        await cancel_below_for_sure(engine, stored)
    row = _given_up(known, stored) if stored.state is ActionState.AMBIGUOUS else stored
    verdict = judge(row, ending, now_us=attempt.now_us(), stop=stop)
    if verdict.state not in (LATE if row.state is ActionState.AMBIGUOUS else TRANSITIONS[row.state]):
        return None
    return await settle(engine.journal, row, verdict)


def _given_up(known: Action, stored: Action) -> Action:
    """What the row calls unknown is this very attempt, which knows better."""
    return known.changed(
        state=ActionState.AMBIGUOUS, cancel_requested_time_us=stored.cancel_requested_time_us
    )


def _as_known(run: Run, attempt: Attempt) -> Action:
    assert run.action is not None
    if run.action.effect_begun == attempt.effect_begun:
        return run.action
    return run.action.changed(effect_begun=attempt.effect_begun)


async def _as_stored(engine: Engine, action: Action) -> Action:
    stored = await read_for_sure(engine.journal, action.requester.tenant, action.action_id)
    return action if stored is None else stored
