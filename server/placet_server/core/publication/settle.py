"""A verdict becomes the row's state and its event, in one statement, under the lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.event import EventType
from placet_server.model.lifecycle import TERMINAL, ActionState, check_transition
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.store import action as actions
from placet_server.store.batch import Advance, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt came to. `core/execution/judgement.py` makes them."""

    state: ActionState
    effect: EffectState | None = None
    effect_unknown: bool = False
    reason: str | None = None
    cause: str | None = None
    message: str = ""
    failure_code: str = ""
    failure_category: FailureCategory | None = None
    retry_delay_seconds: float | None = None
    key_released: bool = False
    output_json: str | None = None
    output_digest: str | None = None
    ready_delay_seconds: float = 0.0


async def settle(journal: Journal, action: Action, verdict: Verdict) -> Action | None:
    """The action as settled; None if it is not this lease's any more, or a cancel now forbids the verdict
    to try again.

    `action` is the row as its lease holder knows it. Not to be cancelled: run it in a task of its own.
    """
    check_transition(action.state, verdict.state)
    settled = apply(action, verdict)
    advance = _advance(action, settled, verdict)
    written = await journal.writer.advance(advance)
    if written is None:
        return await _read_back(journal, action, verdict)
    journal.hub.publish(action.action_id)
    return _stamped(settled, written)


def apply(action: Action, verdict: Verdict) -> Action:
    """The row as the verdict leaves it, but for what only the store knows."""
    return action.changed(
        state=verdict.state,
        effect=verdict.effect if verdict.effect is not None else action.effect,
        effect_unknown=verdict.effect_unknown,
        reason=verdict.reason,
        cause=verdict.cause,
        message=verdict.message,
        failure_code=verdict.failure_code,
        failure_category=verdict.failure_category,
        retry_delay_seconds=verdict.retry_delay_seconds,
        key_released=verdict.key_released,
        output_json=verdict.output_json,
    )


async def _read_back(journal: Journal, action: Action, verdict: Verdict) -> Action | None:
    """After a lost reply the statement runs twice; the second run finds the first one's result under the
    same lease.
    """
    stored = await read_for_sure(journal, action.requester.tenant, action.action_id)
    if stored is None or stored.lease_id != action.lease_id or stored.state is not verdict.state:
        return None
    return stored if stored.state in TERMINAL else None


async def read_for_sure(journal: Journal, tenant: str, action_id: str) -> Action | None:
    """The row, once the store answers. For those who hold a result and must not give up."""
    while True:
        try:
            async with journal.pool.connection() as connection:
                return await actions.get(connection, tenant, action_id, full=True)
        except StoreUnavailable:
            await asyncio.sleep(journal.poll_seconds)


def _stamped(settled: Action, written: Written) -> Action:
    return settled.changed(
        sequence=written.sequence,
        receipt_digest=written.receipt,
        settle_time_us=written.time_us if settled.state in TERMINAL else None,
        ready_time_us=written.time_us if settled.state is ActionState.QUEUED else settled.ready_time_us,
    )


def _advance(action: Action, settled: Action, verdict: Verdict) -> Advance:
    event_type, body = event_of(settled, verdict)
    return Advance(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        lease_id=action.lease_id or "",
        state=verdict.state.value,
        effect=None if verdict.effect is None else verdict.effect.value,
        effect_unknown=verdict.effect_unknown,
        reason=verdict.reason,
        cause=verdict.cause,
        message=verdict.message or None,
        failure_code=verdict.failure_code or None,
        failure_category=None if verdict.failure_category is None else verdict.failure_category.value,
        retry_delay_seconds=verdict.retry_delay_seconds,
        key_released=verdict.key_released,
        output=verdict.output_json,
        ready_delay_seconds=verdict.ready_delay_seconds,
        event_type=event_type.value,
        event_body=body,
    )


def event_of(settled: Action, verdict: Verdict) -> tuple[EventType, str]:
    """The event that says the same as the row."""
    if verdict.state is ActionState.QUEUED:
        document: dict[str, object] = {
            "attempt": settled.attempt,
            "cause": verdict.cause,
            "ready_delay_seconds": verdict.ready_delay_seconds,
        }
        return EventType.REQUEUED, _json(document)
    kind = EventType.AMBIGUOUS if verdict.state is ActionState.AMBIGUOUS else EventType.SETTLED
    outcome = outcome_of(settled)
    body: dict[str, object] = {
        "attempt": outcome.attempt,
        "effect": outcome.effect,
        "kind": outcome.kind,
        "retry_advice": outcome.retry_advice,
    }
    if verdict.state is ActionState.SUCCEEDED:
        body["output_digest"] = verdict.output_digest
    else:
        body |= {
            "cause": verdict.cause,
            "failure_category": verdict.failure_category,
            "failure_code": verdict.failure_code,
            "key_released": verdict.key_released,
            "message": verdict.message,
            "reason": verdict.reason,
            "retry_delay_seconds": verdict.retry_delay_seconds,
        }
    return kind, _json(body)


def _json(document: dict[str, object]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
