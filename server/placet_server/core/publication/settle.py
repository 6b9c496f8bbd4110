"""A verdict becomes the row's state and its event, in one statement, under the lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from placet_server.core.publication.family import is_told_by_steps, with_effect_for_sure
from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.line import dead_letter, is_dead_letter, line_of, place_in_line
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.session import pass_turn_after
from placet_server.core.publication.wake import wake_parent_of, wake_parents
from placet_server.model.action import Action
from placet_server.model.event import EventType
from placet_server.model.lifecycle import CHILD, POSTPONED, TERMINAL, WOKEN, ActionState, check_transition
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.store import action as actions
from placet_server.store.batch_item import Advance, Written
from placet_server.store.wake import Parent


class Verdict(NamedTuple):
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
    # Of one that is parked: for which of its steps it waits; of one that goes on later: how much it has said.
    awaited: tuple[str, ...] = ()
    lane_number: int = 0

    def row(self, action: Action) -> dict[str, Any]:
        """The members of the row that it changes."""
        return {
            "state": self.state,
            "effect": action.effect if self.effect is None else self.effect,
            "effect_unknown": self.effect_unknown,
            "reason": self.reason,
            "cause": self.cause,
            "message": self.message,
            "failure_code": self.failure_code,
            "failure_category": self.failure_category,
            "retry_delay_seconds": self.retry_delay_seconds,
            "key_released": self.key_released,
            "output_json": self.output_json,
        }


async def settle(
    journal: Journal,
    action: Action,
    verdict: Verdict,
    *,
    as_read: bool = False,
    resolution: Mapping[str, str] | None = None,
) -> Action | None:
    """The action as settled; None if it is not this lease's any more, or a cancel now forbids the verdict
    to try again.

    `action` is the row as its lease holder knows it. `as_read`: by somebody else than the lease holder, so only
    if the row has not moved since it was read; nobody is asked about it any more if it was in doubt. `resolution`:
    whose verdict it is, and why, for the event. Not to be cancelled: run it in a task of its own.
    """
    check_transition(action.state, verdict.state)
    ends_run = is_told_by_steps(action, verdict)
    if ends_run:
        verdict = await with_effect_for_sure(journal, action, verdict)
    advance = _advance(journal, action, verdict)
    if as_read:
        advance["sequence"] = action.sequence
        if action.state is ActionState.AMBIGUOUS:
            # Nobody is asked about it any more.
            advance.setdefault("dead_letter", False)
    if resolution is not None:
        advance["event_body"] = _json(orjson.loads(advance["event_body"]) | {"resolution": resolution})
    written = await journal.writer.advance(advance)
    if written is None:
        return await _read_back(journal, action, verdict)
    journal.hub.publish(action.action_id)
    if written.wakes:
        journal.boundary.reached("step_ended", action.capability)
        await wake_parent_of(journal, action)
        journal.boundary.reached("parent_woken", action.capability)
    settled = _settled(action, verdict, written)
    if ends_run:
        await pass_turn_after(journal, settled)
    if settled.cause == CHILD:
        journal.boundary.reached("parked", action.capability)
        # What ended while it was parked has not seen it wait.
        await wake_parents(journal, [Parent(action.requester.tenant, action.action_id)])
    elif written.woken:
        journal.announce(line_of(settled), 0.0)
    if advance.get("dead_letter"):
        journal.note_dead(action.queue, verdict.reason or "")
    delay = advance.get("claim_delay_seconds")
    if delay is not None:
        journal.announce(line_of(settled), delay)
    return settled


async def _read_back(journal: Journal, action: Action, verdict: Verdict) -> Action | None:
    """After a lost reply the statement runs twice; the second run finds the first one's result under the
    same lease.
    """
    stored = await read_for_sure(journal, action.requester.tenant, action.action_id)
    if stored is None or stored.lease_id != action.lease_id or stored.state is not verdict.state:
        return None
    if stored.state not in TERMINAL:
        return None
    await wake_parent_of(journal, stored)
    return stored


async def read_for_sure(journal: Journal, tenant: str, action_id: str) -> Action | None:
    """The row, once the store answers. For those who hold a result and must not give up."""

    async def look() -> Action | None:
        async with journal.pool.connection() as connection:
            return await actions.get(connection, tenant, action_id, full=True)

    return await for_sure(journal, look)


def _settled(action: Action, verdict: Verdict, written: Written) -> Action:
    """The row as the statement left it."""
    members = verdict.row(action)
    members["sequence"] = written.sequence
    members["receipt_digest"] = written.receipt
    members["settle_time_us"] = written.time_us if verdict.state in TERMINAL else None
    if verdict.state is ActionState.WAITING:
        members |= {"lease_id": None, "ready_time_us": written.time_us}
        if written.woken:
            members |= {"state": ActionState.QUEUED, "cause": WOKEN}
    if verdict.state is ActionState.QUEUED:
        members["lease_id"] = None
        members["ready_time_us"] = written.time_us + round(verdict.ready_delay_seconds * 1_000_000)
    return action.with_members(members)


def _advance(journal: Journal, action: Action, verdict: Verdict) -> Advance:
    event_type, body = event_of(action, verdict)
    # What is a word here is a str that orjson writes as one.
    advance: Advance = {
        "tenant": action.requester.tenant,
        "action_id": action.action_id,
        "lease_id": action.lease_id or "",
        "state": verdict.state,
        "effect": verdict.effect,
        "effect_unknown": verdict.effect_unknown,
        "event_type": event_type,
        "event_body": body,
    }
    if action.parent_id is not None and _is_told(action, verdict.state):
        advance["parent_id"] = action.parent_id
    if verdict.state is ActionState.SUCCEEDED:
        advance["output"] = verdict.output_json
        return advance
    advance |= Advance(
        reason=verdict.reason,
        cause=verdict.cause,
        message=verdict.message or None,
        failure_code=verdict.failure_code or None,
        failure_category=verdict.failure_category,
        retry_delay_seconds=verdict.retry_delay_seconds,
        key_released=verdict.key_released,
        ready_delay_seconds=verdict.ready_delay_seconds,
    )
    if verdict.state is ActionState.AMBIGUOUS:
        advance |= Advance(dead_letter=False, capability=action.capability, version=action.version)
    elif verdict.state is ActionState.QUEUED:
        after = action.with_members(verdict.row(action))
        advance |= place_in_line(journal, after, verdict.ready_delay_seconds)
    elif verdict.state is ActionState.WAITING:
        advance |= Advance(awaited=list(verdict.awaited), woken_body=_woken(action, verdict))
    elif is_dead_letter(action, verdict.state):
        advance |= dead_letter(action)
    return advance


def _is_told(action: Action, state: ActionState) -> bool:
    """Whether a parent that waits for the step hears of it: of doubt not as long as somebody is asked about it."""
    return state in TERMINAL or (state is ActionState.AMBIGUOUS and action.effect_class != "RECONCILABLE")


def event_of(action: Action, verdict: Verdict) -> tuple[EventType, str]:
    """The event that says the same as the row."""
    if verdict.state is ActionState.SUCCEEDED:
        return EventType.SETTLED, _success(action, verdict)
    if verdict.state is ActionState.WAITING:
        return EventType.PARKED, _json(
            {
                "attempt": action.attempt,
                "lane_number": verdict.lane_number,
                "steps": len(verdict.awaited),
            }
        )
    if verdict.state is ActionState.QUEUED:
        said: dict[str, object] = {"attempt": action.attempt, "cause": verdict.cause}
        if verdict.cause == POSTPONED:
            said["lane_number"] = verdict.lane_number
        return EventType.REQUEUED, _json(said | {"ready_delay_seconds": verdict.ready_delay_seconds})
    outcome = outcome_of(action.changed(**verdict.row(action)))
    body = {
        "attempt": outcome.attempt,
        "cause": verdict.cause,
        "effect": outcome.effect,
        "failure_category": verdict.failure_category,
        "failure_code": verdict.failure_code,
        "key_released": verdict.key_released,
        "kind": outcome.kind,
        "message": verdict.message,
        "reason": verdict.reason,
        "retry_advice": outcome.retry_advice,
        "retry_delay_seconds": verdict.retry_delay_seconds,
    }
    return EventType.AMBIGUOUS if verdict.state is ActionState.AMBIGUOUS else EventType.SETTLED, _json(body)


def _woken(action: Action, verdict: Verdict) -> str:
    """Of the event, if one of its steps has ended meanwhile."""
    said = {"attempt": action.attempt, "lane_number": verdict.lane_number}
    return _json(said | {"cause": WOKEN, "ready_delay_seconds": 0.0})


def _success(action: Action, verdict: Verdict) -> str:
    """What `_json` would say, without a document: nothing in it needs escaping."""
    effect = "null" if verdict.effect is None else f'"{verdict.effect}"'
    return (
        f'{{"attempt":{action.attempt},"effect":{effect},"kind":"SUCCEEDED",'
        f'"output_digest":"{verdict.output_digest}","retry_advice":"NEVER"}}'
    )


def _json(document: Mapping[str, object]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
