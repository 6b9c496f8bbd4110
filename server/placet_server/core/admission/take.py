"""Starting what was claimed from a queue: the row says what to run and for whom, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from placet.app import Tool
from placet_server.core.admission.begin import begin
from placet_server.core.admission.credential import check_credential
from placet_server.core.execution.child import Holding
from placet_server.core.execution.ending import Ending, Failed, StopCause, Stopped
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import judge
from placet_server.core.execution.run import start_run
from placet_server.core.execution.runs import Run, Work
from placet_server.core.execution.trace import trace_of_step
from placet_server.core.publication.close import end_left_over
from placet_server.core.publication.settle import settle
from placet_server.model.action import Action, OnCallerGone
from placet_server.model.caller import caller_of
from placet_server.model.capability import Capability
from placet_server.model.errors import Overloaded
from placet_server.model.gate_errors import CredentialMismatch
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.store import action as actions


class Taken(NamedTuple):
    """An action that runs here under a lease of its own since it was claimed.

    `begin_until`, by the loop's clock: later, somebody else may have found that nobody runs it. `holdings`: what the
    run gives back while it waits for children."""

    action: Action
    capability: Capability
    tool: Tool
    begin_until: float
    holdings: tuple[Holding, ...] = ()


def take(engine: Engine, taken: Taken) -> asyncio.Task[object]:
    """Starts it at once: nothing may be awaited between the answer to the claim and this. The task ends when it has.

    Raises Overloaded, for a plain handler without a thread.
    """
    other = engine.runs.get(taken.action.action_id)
    if other is not None:
        return engine.supervisor.start(_take_after(engine, taken, other))
    run = _start(engine, taken, _acquire)
    assert run.task is not None
    return run.task


async def _take_after(engine: Engine, taken: Taken, other: Run) -> None:
    """A resend here has asked for the same action, too late, and has not heard of it yet."""
    if other.task is not None:
        await asyncio.wait((other.task,))
    if engine.runs.get(taken.action.action_id) is None:
        try:
            run = _start(engine, taken, _acquire_again)
        except Overloaded:
            await _give_back(engine, taken)
        else:
            assert run.task is not None
            await asyncio.wait((run.task,))


def _start(
    engine: Engine, taken: Taken, acquire: Callable[[Engine, Taken, Run], Awaitable[Action | None]]
) -> Run:
    action = taken.action
    seconds = ((action.deadline_us or 0) - (action.start_time_us or 0)) / 1_000_000
    work = Work(
        caller_of(action.requester),
        taken.capability,
        taken.tool,
        action.input_json or "",
        timeout_seconds=seconds,
        deadline_cause=StopCause.TIMEOUT,
    )
    run = engine.new_run(work, action.action_id, OnCallerGone.DETACH)
    run.holdings = taken.holdings
    start_run(engine, run, partial(acquire, engine, taken, run))
    return run


async def _acquire(engine: Engine, taken: Taken, run: Run) -> Action | None:
    """The running action; None if it is not to be begun. It has the lease already."""
    if asyncio.get_running_loop().time() > taken.begin_until:
        await _give_back(engine, taken)
        return None
    if taken.action.input_json is None:
        return await _acquire_again(engine, taken, run)
    return await _fit(engine, taken, run)


async def _acquire_again(engine: Engine, taken: Taken, run: Run) -> Action | None:
    """Looks whether it still has the lease, and reads the whole input on the way."""
    requester = taken.action.requester
    async with engine.journal.pool.connection() as connection:
        stored = await actions.get(connection, requester.tenant, taken.action.action_id, full=True)
    if stored is None or stored.lease_id != taken.action.lease_id:
        return None
    if asyncio.get_running_loop().time() > taken.begin_until:
        await _give_back(engine, taken)
        return None
    run.work = run.work._replace(input_json=stored.input_json or "")
    return await _fit(engine, taken._replace(action=stored), run)


async def _fit(engine: Engine, taken: Taken, run: Run) -> Action | None:
    """What it cannot be run with is found before its handler is entered, and ends it alone."""
    try:
        check_credential(taken.capability, run.work.caller)
    except CredentialMismatch as error:
        await _end(engine, taken, _failed(error))
        return None
    if engine.traces_runs and taken.action.parent_id is not None:
        run.work = run.work._replace(trace=await trace_of_step(engine.journal, taken.action))
    return await begin(engine, taken.action, run.work.input_json)


def _failed(error: CredentialMismatch) -> Failed:
    return Failed(
        code=f"credential_{error.problem}",
        message=error.text(),
        category=FailureCategory.FORBIDDEN,
        effect=EffectState.NOT_DONE,
    )


async def _give_back(engine: Engine, taken: Taken) -> None:
    await _end(engine, taken, Stopped(cause=StopCause.NEVER_STARTED, entered=False))


async def _end(engine: Engine, taken: Taken, ending: Ending) -> None:
    """Of an attempt whose handler was not entered; nothing, if somebody else has found it meanwhile."""
    action = taken.action.changed(effect_begun=False)
    verdict = judge(action, ending, now_us=action.start_time_us or 0)
    settled = await settle(engine.journal, taken.action, verdict)
    if settled is not None:
        engine.observer.settled(settled, 0.0)
        await end_left_over(engine.journal, settled)
