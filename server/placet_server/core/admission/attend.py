"""Waiting for an action that exists, and taking it over when it is ready again.

A resend of a request, the first caller whose attempt was given up, and a caller of another process all
stand at the same place: the action is there, and somebody runs it, or nobody does. Whoever stands there
with the request in hand, or resumes it by its id, may claim it; the claim decides who."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from placet_server.core.admission.answer import waits_for_people
from placet_server.core.admission.begin import begin
from placet_server.core.admission.contract import Clocks, clocks_for
from placet_server.core.admission.credential import check_credential
from placet_server.core.admission.pipeline import Checked
from placet_server.core.admission.slot import in_slot
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.run import start_run
from placet_server.core.execution.runs import Patience, Run, Work
from placet_server.core.kernel import Kernel
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.core.publication.read import now_us
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.action import Action, Invocation, OnWait
from placet_server.model.caller import Caller, caller_of
from placet_server.model.capability import Capability
from placet_server.model.ending_errors import DeadlineExceeded
from placet_server.model.errors import Draining, Overloaded
from placet_server.model.gate_errors import HandlerNotFound
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import action as actions


def work_of(checked: Checked) -> Work:
    call, capability, tool, canonical, clocks, *_ = checked
    assert tool is not None, "the gates let nothing pass that is to run here and cannot"
    return Work(
        call.caller,
        capability,
        tool,
        canonical.text,
        timeout_seconds=clocks.attempt_seconds,
        deadline_cause=clocks.attempt_cause,
        on_admitted=call.on_admitted,
        trace=call.trace,
    )


class Wish(NamedTuple):
    """That an action be run to its end: in whose name, on what, within which times. `wait_seconds`: how long whoever
    wishes it meant to wait in all. `holds`: for people, too."""

    caller: Caller
    input_json: str
    timeout_seconds: float | None
    time_left_seconds: float | None
    wait_seconds: float | None
    on_admitted: Callable[[str], None] | None = None
    trace: Mapping[str, str] = MappingProxyType({})
    holds: bool = False


def wish_of(checked: Checked) -> Wish:
    """As the request says."""
    call = checked.call
    return Wish(
        call.caller,
        checked.input.text,
        call.invocation.timeout_seconds,
        call.time_left_seconds,
        checked.clocks.wait_seconds,
        call.on_admitted,
        call.trace,
        call.invocation.on_wait is OnWait.HOLD,
    )


async def attend(kernel: Kernel, wish: Wish, action: Action, patience: Patience) -> Action:
    """The action once it is terminal or ambiguous, or waits for people and the caller does not; or as it stands when
    the caller's patience is over.

    Raises Draining if it should be run and this server starts nothing any more, HandlerNotFound if its
    pinned version has no handler here."""
    engine = kernel.engine
    with engine.runs.wanting(action.action_id):
        return await _attend(kernel, wish, action, patience)


async def _attend(kernel: Kernel, wish: Wish, action: Action, patience: Patience) -> Action:
    engine = kernel.engine
    while not await _is_answer(engine.journal, wish, action) and not patience.is_over():
        run = engine.runs.get(action.action_id)
        if run is None and action.state is ActionState.QUEUED and await _is_ready(engine.journal, action):
            try:
                run = await _claim_run(kernel, wish, action, patience)
            except DeadlineExceeded:
                return action
        if run is None:
            action = await _news(engine.journal, action, patience)
            continue
        try:
            answer = await run.wait(patience)
        except Overloaded:
            # Its contract lets no more begin now: it waits on, as it would in line.
            action = await _news(engine.journal, action, patience)
            continue
        if not run.is_finished:
            return answer or action
        action = answer or await _after(engine.journal, action, patience)
    return action


async def _is_answer(journal: Journal, wish: Wish, action: Action) -> bool:
    if action.state is ActionState.WAITING:
        return not wish.holds and waits_for_people(await with_family_waits(journal, action))
    return action.state in TERMINAL or action.state is ActionState.AMBIGUOUS


async def _claim_run(kernel: Kernel, wish: Wish, action: Action, patience: Patience) -> Run:
    """Runs the pinned version, which may not be the current one any more; or joins who was faster here.

    Raises DeadlineExceeded if the caller's deadline leaves no time for it.
    """
    engine = kernel.engine
    if kernel.is_draining:
        raise Draining()
    resolved = await kernel.catalog.resolve(action.requester.tenant, action.capability, action.version)
    tool = engine.handlers.find_for(resolved.capability, action.requester.tenant)
    if tool is None:
        raise HandlerNotFound(capability=action.capability, version=action.version)
    caller = _in_whose_name(wish, action)
    check_credential(resolved.capability, caller)
    # From here to the start nothing is awaited: a process never runs an action twice at a time.
    faster = engine.runs.get(action.action_id)
    if faster is not None:
        return faster
    clocks = _clocks_left(wish, resolved.capability, action, patience)
    work = Work(
        caller,
        resolved.capability,
        tool,
        wish.input_json,
        timeout_seconds=clocks.attempt_seconds,
        deadline_cause=clocks.attempt_cause,
        on_admitted=wish.on_admitted,
        trace=wish.trace,
    )
    run = engine.new_run(work, action.action_id, action.on_caller_gone)
    acquire = _claim_in_slot if resolved.capability.is_limited else _claim
    start_run(engine, run, partial(acquire, engine, resolved.capability, action, work))
    return run


def _in_whose_name(wish: Wish, action: Action) -> Caller:
    """Its requester's, as it was admitted and shown to people, whoever attends to it with the same key; with a newer
    credential if that is the requester.
    """
    requester, asks = caller_of(action.requester), wish.caller
    if (asks.subject, asks.delegation) != (requester.subject, requester.delegation):
        return requester
    return replace(requester, credential=asks.credential)


def _clocks_left(wish: Wish, capability: Capability, action: Action, patience: Patience) -> Clocks:
    """A later attempt has what the caller's deadline still leaves."""
    invocation = Invocation(
        capability=capability.name,
        input_json="",
        on_caller_gone=action.on_caller_gone,
        timeout_seconds=action.attempt_timeout_seconds if action.is_submitted else wish.timeout_seconds,
    )
    left = patience.left_seconds()
    if wish.wait_seconds is None or left is None or wish.time_left_seconds is None:
        return clocks_for(capability, invocation, None)
    return clocks_for(capability, invocation, wish.time_left_seconds - (wish.wait_seconds - left))


async def _claim_in_slot(engine: Engine, capability: Capability, action: Action, work: Work) -> Action | None:
    lease_id, tenant = new_lease_id(), action.requester.tenant
    write = partial(_claim, engine, capability, action, work, lease_id)
    return await in_slot(engine, capability, tenant, action.action_id, lease_id, write)


async def _claim(
    engine: Engine,
    capability: Capability,
    action: Action,
    work: Work,
    lease_id: str | None = None,
) -> Action | None:
    journal, lease_id = engine.journal, lease_id or new_lease_id()
    async with journal.pool.connection() as connection:
        claimed = await actions.claim(
            connection,
            action,
            lease_id=lease_id,
            boot_id=journal.boot_id,
            timeout_seconds=work.timeout_seconds,
            now=journal.clock.now(),
        )
    if claimed is None:
        return None
    journal.hub.publish(action.action_id)
    is_read = action.effect_class == "READ"
    running = action.changed(
        state=ActionState.RUNNING,
        lease_id=lease_id,
        instance_id=journal.boot_id,
        attempt=claimed.attempt,
        attempts_max=claimed.attempts_max,
        effect=None if is_read else action.effect or EffectState.NOT_DONE,
        effect_begun=claimed.effect_begun,
        start_time_us=claimed.time_us,
        deadline_us=claimed.deadline_us,
        effect_key_expire_time_us=claimed.effect_key_expire_time_us,
        budget_time_us=claimed.budget_time_us,
        sequence=claimed.sequence,
        receipt_digest=claimed.receipt,
        provider_operation=claimed.provider_operation,
        provider_cursor_json=claimed.provider_cursor,
    )
    return await begin(engine, running, work.input_json)


async def _news(journal: Journal, action: Action, patience: Patience) -> Action:
    """The action after a wake-up, or after the poll interval."""
    subscription = journal.hub.subscribe(action.action_id)
    left = patience.left_seconds()
    seconds = journal.poll_seconds if left is None else min(journal.poll_seconds, left)
    await journal.hub.wait(action.action_id, subscription, seconds)
    return await _read(journal, action)


async def _after(journal: Journal, action: Action, patience: Patience) -> Action:
    """The action as somebody else has moved it meanwhile; otherwise its next news."""
    stored = await _read(journal, action)
    return stored if stored.sequence != action.sequence else await _news(journal, action, patience)


async def _read(journal: Journal, action: Action) -> Action:
    async with journal.pool.connection() as connection:
        stored = await actions.get(connection, action.requester.tenant, action.action_id, full=True)
    return action if stored is None else stored


async def _is_ready(journal: Journal, action: Action) -> bool:
    return action.ready_time_us is None or action.ready_time_us <= await now_us(journal)
