"""The use cases that run something: to the end, or to the end with its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from placet_server.core.admission.answer import answer
from placet_server.core.admission.attend import attend, wish_of, work_of
from placet_server.core.admission.begin_here import begin_here
from placet_server.core.admission.key import Known, meet_known
from placet_server.core.admission.leave import leave
from placet_server.core.admission.message import find_by_message, take_for
from placet_server.core.admission.pipeline import Call, Checked, pass_gates
from placet_server.core.admission.reserve import find_by_key, is_boot_alive, reserve
from placet_server.core.admission.slot import reserve_in_slot
from placet_server.core.admission.submit import store
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.run import start_run
from placet_server.core.execution.runs import Patience, Run
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import new_action_id, new_lease_id
from placet_server.core.publication.read import now_us
from placet_server.core.publication.watch import watch_action
from placet_server.model.action import Action, OnWait, Submission
from placet_server.model.caller import Caller
from placet_server.model.contract import EffectClass
from placet_server.model.errors import Draining, Overloaded, PlacetError, WaitExpired
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.lifecycle import TERMINAL, ActionState

ADMISSION_TRIES_MAX = 8


class Executed(NamedTuple):
    """SUCCEEDED, or WAITING for who wants that returned. `attached`: the key was known, so nothing ran for this call
    alone.
    """

    action: Action
    attached: bool


async def execute(kernel: Kernel, call: Call) -> Executed:
    """Runs to the end, or joins what runs already.

    Raises the refusal of a gate, the error of every other ending, or WaitExpired; with the outcome attached
    once there is an action. A cancelled caller leaves the work to what `on_caller_gone` says."""
    checked = await pass_gates(kernel, call)
    patience = _patience(checked)
    action, attached = await _enter(kernel, checked, patience)
    if action.state not in TERMINAL:
        action = await _attend(kernel, checked, action, patience)
    if action.state is not ActionState.SUCCEEDED:
        action = await answer(kernel.journal, action, call.invocation.on_wait)
    return Executed(action, attached)


async def execute_stream(kernel: Kernel, call: Call) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """The same, with every event from the first on. After the last event raises what `execute` raises."""
    checked = await pass_gates(kernel, call)
    patience = _patience(checked)
    loop = asyncio.get_running_loop()
    admitted: asyncio.Future[str] = loop.create_future()
    running = kernel.engine.supervisor.start(_run_and_tell(kernel, checked, patience, admitted))
    try:
        action_id = await _first(admitted, running)
        told = tell_until_ended(kernel, call.caller, action_id, "", running, call.invocation.on_wait)
        async with aclosing(told) as items:
            async for item in items:
                yield item
    finally:
        if not running.done():
            await kernel.engine.supervisor.stop([running])


async def tell_until_ended(
    kernel: Kernel,
    caller: Caller,
    action_id: str,
    after_cursor: str,
    running: asyncio.Task[Action | PlacetError],
    on_wait: OnWait = OnWait.FAIL,
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """The events of an action that is attended to by `running`. At the end raises what `execute` raises."""
    watched = watch_action(kernel.journal, caller, action_id, after_cursor, until=running)
    async with aclosing(watched) as items:
        async for item in items:
            yield item
    await answer(kernel.journal, _action_or_raise(await running), on_wait)


def _patience(checked: Checked) -> Patience:
    seconds = checked.clocks.wait_seconds
    return Patience(until=None if seconds is None else asyncio.get_running_loop().time() + seconds)


async def _run_and_tell(
    kernel: Kernel, checked: Checked, patience: Patience, admitted: asyncio.Future[str]
) -> Action | PlacetError:
    """The error is the caller's, not a fault of the task, so it is returned."""
    announce = checked.call.on_admitted

    def tell(action_id: str) -> None:
        if not admitted.done():
            admitted.set_result(action_id)
        if announce is not None:
            announce(action_id)

    told = checked._replace(call=checked.call._replace(on_admitted=tell))
    try:
        action, _ = await _enter(kernel, told, patience)
        return await _attend(kernel, told, action, patience)
    except PlacetError as error:
        return error


def _action_or_raise(result: Action | PlacetError) -> Action:
    if isinstance(result, PlacetError):
        raise result
    return result


async def _first(admitted: asyncio.Future[str], running: asyncio.Task[Action | PlacetError]) -> str:
    """The id as soon as there is one; raises what the admission raised."""
    await asyncio.wait((admitted, running), return_when=asyncio.FIRST_COMPLETED)
    if admitted.done():
        return admitted.result()
    return _action_or_raise(running.result()).action_id


async def _enter(kernel: Kernel, checked: Checked, patience: Patience) -> tuple[Action, bool]:
    """The action of this call, run or met, or stored, to wait for people, or begun with a place in line, because it may
    have to wait for its steps with nobody running it: as it stands, and whether it was met.

    Without a free thread or slot nothing is run, but who only comes to attend needs none. Raises Overloaded.
    """
    if checked.terms is not None or checked.capability.contract.effect is EffectClass.COMPOSED:
        begun = await begin_here(kernel, checked)
        return await store(kernel, checked, Submission()) if begun is None else (begun, False)
    predecessor: Action | None = None
    for _ in range(ADMISSION_TRIES_MAX):
        shed = None
        try:
            run = _start(kernel.engine, checked, predecessor)
            action = await run.wait(patience) or run.action
        except Overloaded as error:
            if checked.key is None:
                raise
            shed = error
        else:
            if action is not None:
                return action, False
            if not run.is_finished:
                raise WaitExpired(state="UNKNOWN")
        if patience.is_over():
            raise WaitExpired(state="UNKNOWN")
        if checked.call.message is not None:
            made = await find_by_message(kernel.journal, checked)
            if made is not None:
                return _met(checked, made)
        if checked.key is None:
            raise Draining()
        known = await find_by_key(kernel.journal, checked.key.digest)
        if known is None:
            if shed is not None:
                raise shed
            predecessor = None
            if kernel.is_fenced or not await is_boot_alive(kernel.journal):
                raise Draining()
            continue
        meaning = meet_known(
            known, checked.call.invocation, checked.input.digest.hex(), await now_us(kernel.journal)
        )
        if meaning is Known.ATTEND:
            await take_for(kernel.journal, checked, known)
            return _met(checked, known)
        if shed is not None:
            raise shed
        predecessor = known
    raise Draining()


async def _attend(kernel: Kernel, checked: Checked, action: Action, patience: Patience) -> Action:
    call = checked.call
    if action.effect_class != EffectClass.COMPOSED or not call.invocation.ends_with_its_caller:
        return await attend(kernel, wish_of(checked), action, patience)
    try:
        action = await attend(kernel, wish_of(checked), action, patience)
    except asyncio.CancelledError:
        leave(kernel, call.caller, action.action_id)
        raise
    if action.state in (ActionState.QUEUED, ActionState.RUNNING) or action.is_parked:
        leave(kernel, call.caller, action.action_id)
    return action


def _met(checked: Checked, action: Action) -> tuple[Action, bool]:
    if checked.call.on_admitted is not None:
        checked.call.on_admitted(action.action_id)
    return action, True


def _start(engine: Engine, checked: Checked, predecessor: Action | None) -> Run:
    """Admits and runs. The run ends without an action if the key is held, or this boot may start nothing.

    Raises Overloaded before anything is written.
    """
    action_id = new_action_id()
    run = engine.new_run(work_of(checked), action_id, checked.call.invocation.on_caller_gone)
    lease_id = new_lease_id()
    if checked.capability.is_limited:
        start_run(engine, run, partial(reserve_in_slot, engine, checked, action_id, predecessor, lease_id))
    else:
        start_run(engine, run, partial(reserve, engine.journal, checked, action_id, predecessor, lease_id))
    return run
