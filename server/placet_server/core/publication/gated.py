"""Moving on an action that waits for people, or has been allowed by them and has not begun.

All within one tx that has locked the action, then its approval, and reads them again after that: what was known before
is a hint. So votes, cancels, expiries and starts of one action come one after the other, whoever makes them where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import orjson

from placet_server.core.publication.approval_callback import ended
from placet_server.core.publication.callback import Callbacks, enqueue
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.line import closing_time_us, line_of
from placet_server.core.publication.settle import Verdict
from placet_server.core.publication.write_close import write_close
from placet_server.model.action import Action
from placet_server.model.callback import Callback
from placet_server.model.decision import Approval, ApprovalState
from placet_server.model.event import EventType
from placet_server.model.lifecycle import TERMINAL, ActionState, check_transition
from placet_server.store import action as actions
from placet_server.store import approval_move as moves
from placet_server.store.approval_move import Due, Fact
from placet_server.store.connection import Connection

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """An action and its approval, locked, at this time. `callbacks`: who else is told."""

    action: Action
    approval: Approval
    now: datetime
    callbacks: Callbacks

    @property
    def now_us(self) -> int:
        return (self.now - _EVER) // timedelta(microseconds=1)


async def lock_gated(connection: Connection, journal: Journal, approval: Approval | Due) -> Gated | None:
    """None: they are gone."""
    if not await moves.lock_action(connection, approval.tenant, approval.action_id):
        return None
    locked = await moves.lock(connection, approval.tenant, approval.approval_id)
    action = await actions.get(connection, approval.tenant, approval.action_id, full=False)
    if locked is None or action is None:
        return None
    now = await moves.time_of(connection, journal.clock.now())
    return Gated(action=action, approval=locked, now=now, callbacks=journal.callbacks)


async def tell(connection: Connection, gated: Gated, fact: Fact) -> Gated:
    """Something in its life that moves nothing."""
    _written(await moves.note(connection, gated.action, fact, gated.now))
    return replace(gated, action=gated.action.changed(sequence=gated.action.sequence + 1))


async def make_ready(connection: Connection, gated: Gated, fact: Fact) -> Action:
    """The approval is granted, and the action ready, with its place in line: who has committed that announces it. The
    time that people took is none of its retry budget.
    """
    action, budget = gated.action, gated.action.budget_time_us
    check_transition(action.state, ActionState.QUEUED)
    ready = action.changed(
        state=ActionState.QUEUED,
        cause=None,
        budget_time_us=None if budget is None else budget + gated.now_us - gated.approval.create_time_us,
        ready_time_us=max(gated.now_us, action.ready_time_us or 0),
        sequence=action.sequence + 1,
    )
    done = await moves.grant(connection, gated.approval, gated.now) and await moves.queue_action(
        connection,
        action,
        fact,
        expire_time_us=closing_time_us(ready),
        budget_time_us=ready.budget_time_us,
        now=gated.now,
    )
    _written(done)
    await tell_others(connection, gated, ended(gated.approval, ApprovalState.GRANTED))
    return ready


async def end_gated(connection: Connection, gated: Gated, state: ApprovalState, verdict: Verdict) -> None:
    """The approval ends so, and the action by the verdict."""
    await end_approval(connection, gated, state)
    _written(await write_close(connection, gated.action, verdict, gated.now))


async def end_approval(connection: Connection, gated: Gated, state: ApprovalState) -> None:
    """The action is where it is."""
    _written(await moves.end(connection, gated.approval, state, gated.now))
    await tell_others(connection, gated, ended(gated.approval, state))


def left_over_state(gated: Gated) -> ApprovalState | None:
    """What becomes of an open approval whose action has ended without beginning; None: it is no such one."""
    approval = gated.approval
    if not approval.is_open or gated.action.state not in TERMINAL:
        return None
    return ApprovalState.EXPIRED if gated.now_us >= approval.expire_time_us else ApprovalState.WITHDRAWN


def _written(done: bool) -> None:
    """Of what this tx has locked and looked at. Anything else is a fault of ours, and none of it is committed."""
    if not done:
        raise RuntimeError("what is locked has moved")


async def tell_others(connection: Connection, gated: Gated, callback: Callback) -> None:
    """Within the tx; who has committed it rings."""
    await enqueue(gated.callbacks, connection, callback, gated.now)


def waiting_fact(approval: Approval) -> Fact:
    """That its action waits for it."""
    body: dict[str, object] = {
        "approval_id": approval.approval_id,
        "kind": approval.kind.value,
        "title": approval.title,
        "ttl_seconds": (approval.expire_time_us - approval.create_time_us) // 1_000_000,
    }
    if approval.predecessor_id is not None:
        body["predecessor_id"] = approval.predecessor_id
    return fact_of(EventType.WAITING, body)


def ended_fact(gated: Gated, state: ApprovalState) -> Fact:
    """That it is over without a vote that ended it."""
    return fact_of(
        EventType.APPROVAL_ENDED, {"approval_id": gated.approval.approval_id, "state": state.value}
    )


def fact_of(type_: EventType, body: Mapping[str, object]) -> Fact:
    return Fact(type_.value, orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode())


def announce_ready(journal: Journal, action: Action, now_us: int) -> None:
    """After the commit."""
    journal.hub.publish(action.action_id)
    journal.announce(line_of(action), ((action.ready_time_us or 0) - now_us) / 1_000_000)
