"""The use case that stores an action and leaves it to a server: the same gates, and then a place in line."""

from __future__ import annotations

from asyncio import Future
from typing import Any, NamedTuple, TypeGuard, cast

from placet_server.core.admission.key import Known, meet_known
from placet_server.core.admission.message import find_by_message, message_columns, take_for
from placet_server.core.admission.pipeline import Call, Checked, pass_gates
from placet_server.core.admission.reserve import find_by_key, is_boot_alive, members_of, row_of
from placet_server.core.admission.session import as_held, check_same_session, make_way, write_in_session
from placet_server.core.decision.request import request_of
from placet_server.core.kernel import Kernel
from placet_server.core.publication.approval_callback import requested
from placet_server.core.publication.family import with_effect_so_far
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_action_id
from placet_server.core.publication.line import line_of
from placet_server.core.publication.read import now_us
from placet_server.core.publication.waits import with_waits
from placet_server.model.action import Action, OnCallerGone, Submission
from placet_server.model.capability import CapabilityKind
from placet_server.model.errors import Draining
from placet_server.model.lifecycle import ActionState
from placet_server.model.wait import Wait, WaitKind
from placet_server.store import action as actions
from placet_server.store.batch_item import BegunRow, ChildRow, SubmissionRow, WaitingRow, Written
from placet_server.store.message import MessageClaimed

SUBMISSION_TRIES_MAX = 8


class Submitted(NamedTuple):
    """The action as it was stored; or, `attached`, as the key's holder stands, in whatever state."""

    action: Action
    attached: bool


async def submit(kernel: Kernel, call: Call, place: Submission) -> Submitted:
    """Returns if and only if the action is stored; which server runs it, and when, is the queue's.

    Raises the refusal of a gate, Draining, or StoreUnavailable: whether it was stored is then told by a resend with
    the same key.
    """
    return await store(kernel, await pass_gates(kernel, call, anywhere=True), place)


async def store(kernel: Kernel, checked: Checked, place: Submission) -> Submitted:
    """Of a call that the gates let pass. Raises Draining, StoreUnavailable, and what a known key means."""
    call = checked.call
    predecessor: Action | None = None
    for _ in range(SUBMISSION_TRIES_MAX):
        row = new_row(kernel.journal, checked, place, predecessor)
        action = await store_row(kernel, checked, row) or await find_own(kernel.journal, row)
        if action is not None:
            return _answer(call, action, attached=False)
        made = await find_by_message(kernel.journal, checked)
        if made is not None:
            return _answer(call, await _as_met(kernel.journal, made), attached=True)
        if checked.key is None:
            raise Draining()
        known = await find_by_key(kernel.journal, checked.key.digest)
        if known is None:
            predecessor = None
            if kernel.is_fenced or not await is_boot_alive(kernel.journal):
                raise Draining()
            continue
        digest = checked.input.digest.hex()
        meaning = meet_known(known, call.invocation, digest, await now_us(kernel.journal))
        if meaning is Known.ATTEND:
            if may_be_in_session(checked):
                await check_same_session(kernel, call, known)
            await take_for(kernel.journal, checked, known)
            return _answer(call, await _as_met(kernel.journal, known), attached=True)
        predecessor = known
    raise Draining()


async def _as_met(journal: Journal, action: Action) -> Action:
    return await with_effect_so_far(journal, await with_waits(journal, action))


def _answer(call: Call, action: Action, *, attached: bool) -> Submitted:
    if call.on_admitted is not None:
        call.on_admitted(action.action_id)
    return Submitted(action, attached)


def may_be_in_session(checked: Checked) -> bool:
    return checked.capability.kind is CapabilityKind.AGENT


async def store_row(kernel: Kernel, checked: Checked, row: SubmissionRow | WaitingRow) -> Action | None:
    """The stored action; None when the key is held, the message was taken, this boot may start nothing, or the row is
    there already. Raises what `write_in_session` does for a run of a session.
    """
    if checked.call.invocation.session is not None:
        return await _store_in_session(kernel, checked, row)
    return await stored(kernel.journal, checked, row, write(kernel.journal, checked, row))


async def stored(
    journal: Journal, checked: Checked, row: SubmissionRow | WaitingRow, written: Future[Written | None]
) -> Action | None:
    """What `write` has begun, once it is over; as `store_row`, for what is in no session."""
    try:
        told = await written
    except MessageClaimed:
        return None
    if told is None:
        return None
    return _stored(journal, checked, placed(journal, checked, row, told), told)


async def _store_in_session(
    kernel: Kernel, checked: Checked, row: SubmissionRow | WaitingRow
) -> Action | None:
    journal, use = kernel.journal, checked.call.invocation.session
    assert use is not None
    journal.boundary.reached("before_intent_persistence", checked.capability.name)
    stored = await write_in_session(journal, checked, _with_message(checked, row))
    if stored is None:
        return None
    action = placed(journal, checked, row, stored.written)
    if stored.held is None:
        return _stored(journal, checked, action, stored.written)
    journal.boundary.reached("intent_persisted", checked.capability.name)
    await make_way(kernel, checked.call.caller, use, stored.number)
    return as_held(action, stored.held)


def _stored(journal: Journal, checked: Checked, action: Action, written: Written) -> Action:
    """After the commit."""
    journal.boundary.reached("intent_persisted", checked.capability.name)
    if action.state is ActionState.WAITING:
        journal.callbacks.ring()
    if action.state is ActionState.QUEUED:
        journal.announce(line_of(action), (written.ready_time_us - written.time_us) / 1_000_000)
    return action


def _with_message(checked: Checked, row: SubmissionRow | WaitingRow) -> SubmissionRow | WaitingRow:
    message = checked.call.message
    return row if message is None else cast(SubmissionRow, {**row, **message_columns(checked, message)})


def write(journal: Journal, checked: Checked, row: SubmissionRow | WaitingRow) -> Future[Written | None]:
    """Begins to. Raises StoreUnavailable, MessageClaimed through the future."""
    journal.boundary.reached("before_intent_persistence", checked.capability.name)
    message = checked.call.message
    row = _with_message(checked, row)
    if is_waiting(row):
        return journal.writer.submit_waiting(row)
    return journal.writer.submit(row) if message is None else journal.writer.submit_message(row)


async def find_own(journal: Journal, row: SubmissionRow | WaitingRow) -> Action | None:
    """After a lost reply the statement runs twice, and the second run meets the first one's row."""
    async with journal.pool.connection() as connection:
        return await actions.get(connection, row["tenant"], row["action_id"], full=True)


def is_waiting(row: SubmissionRow | WaitingRow) -> TypeGuard[WaitingRow]:
    """People have to say yes to it first."""
    return "approval_id" in row


def new_row(
    journal: Journal, checked: Checked, place: Submission, predecessor: Action | None = None
) -> SubmissionRow | WaitingRow:
    contract = checked.capability.contract
    row: dict[str, Any] = row_of(journal, checked, new_action_id(), predecessor)
    row |= {
        # Nobody waits for it, so nobody's leaving ends it.
        "on_caller_gone": OnCallerGone.DETACH,
        "queue": place.queue,
        "priority": place.priority,
        "attempt_timeout_seconds": checked.call.invocation.timeout_seconds,
        "queue_delay_seconds": contract.limits.queue_delay_seconds_max,
        "retry": checked.capability.retry_text,
        "ready_time_us": place.ready_time_us,
        "delay_seconds": place.delay_seconds,
    }
    if checked.terms is not None:
        row |= request_of(row, checked.capability, checked.input, checked.terms, checked.verdict.digest)
        row["deliveries"] = requested(journal.callbacks, row)
    return cast(SubmissionRow, row)


def placed(journal: Journal, checked: Checked, row: SubmissionRow | WaitingRow, written: Written) -> Action:
    """The row as the statement wrote it."""
    members = members_of(journal, checked, row, written)
    members |= {
        "state": ActionState.QUEUED,
        "attempt": 0,
        "on_caller_gone": OnCallerGone.DETACH,
        "ready_time_us": written.ready_time_us,
        "queue": row["queue"],
        "priority": row["priority"],
        "attempt_timeout_seconds": row["attempt_timeout_seconds"],
        "queue_delay_seconds": row["queue_delay_seconds"],
        "backoff": checked.capability.contract.retry,
    }
    if is_waiting(row):
        wait = Wait(
            kind=WaitKind(row["kind"]),
            approval_id=row["approval_id"],
            action_id=row["action_id"],
            title=row["title"],
            expire_time_us=written.time_us + row["ttl_seconds"] * 1_000_000,
        )
        members |= {
            "state": ActionState.WAITING,
            "cause": row["kind"],
            "approval_id": row["approval_id"],
            "waits": (wait,),
        }
    return Action.of_members(members)


def as_begun(journal: Journal, action: Action, row: BegunRow | ChildRow) -> Action:
    """What was placed with a lease, as if it had been claimed at once."""
    ttl_seconds, time_us = row["effect_key_ttl_seconds"], action.create_time_us
    acts = action.effect_class not in ("READ", "COMPOSED")
    return action.with_members(
        {
            "state": ActionState.RUNNING,
            "attempt": 1,
            "lease_id": row["lease_id"],
            "instance_id": journal.boot_id,
            "start_time_us": time_us,
            "deadline_us": time_us + int(row["timeout_seconds"] * 1_000_000),
            "effect_begun": acts and not action.effect_marked,
            "effect_key_expire_time_us": None
            if ttl_seconds is None
            else time_us + int(ttl_seconds * 1_000_000),
            "budget_time_us": time_us,
        }
    )
