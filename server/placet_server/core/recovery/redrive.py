"""What waits, what was given up, and trying that again by an operator's will.

A redrive gives an ended action a new generation: the same key, more attempts, a new elapsed budget. Never one whose
effect is done or not known. What was decided and by whom is in its event, in the same statement. Pauses between
attempts grow on from where they were.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import orjson

from placet_server.core.publication.approval_callback import requested_again
from placet_server.core.publication.callback import enqueue
from placet_server.core.publication.gated import end_approval, left_over_state, lock_gated, waiting_fact
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_action_id
from placet_server.core.publication.line import line_of
from placet_server.core.publication.read import check_text
from placet_server.model.action import Action
from placet_server.model.budget_errors import budget_spent
from placet_server.model.caller import Caller
from placet_server.model.contract import EffectClass
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import PAGE_SIZE_MAX, DeadLetterFilter
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves
from placet_server.store import dead_letter, queue
from placet_server.store import session as sessions
from placet_server.store import session_run as session_runs
from placet_server.store.connection import Connection
from placet_server.store.dead_letter import Found
from placet_server.store.queue import QueueDepth

AttemptsOf = Callable[[Action], Awaitable[int]]
"""How many attempts the action's contract allows."""

Hold = Callable[[Connection], Awaitable[None]]
"""In the tx of each change, after it: raises unless whoever makes it still may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveCommand:
    """`action_ids`, or else the oldest `count_max` dead letters that match. `attempts` 0: as many as the contract
    allows.

    `request` ties resends together: an action that the same caller has redriven by it is not redriven again.
    """

    action_ids: tuple[str, ...] = ()
    matching: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    count_max: int = 100
    attempts: int = 0
    reason: str = ""
    validate_only: bool = False
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """`state` afterwards, None if there is no such action. `refused_rule`, if it was not changed: not_found,
    not_terminal, not_allowed, effect_done, effect_ambiguous, child, child_ambiguous, budget_spent, session_went_on,
    key_taken or moved.
    `capability` and `sequence`: as they were looked at.
    """

    action_id: str
    state: ActionState | None
    changed: bool
    refused_rule: str = ""
    capability: str = field(default="", compare=False)
    sequence: int = field(default=0, compare=False)


async def redrive(
    journal: Journal,
    caller: Caller,
    command: RedriveCommand,
    attempts_of: AttemptsOf,
    hold: Hold | None = None,
) -> list[Selected]:
    """In the order of the ids, each by itself: what was done stays done if a later one fails.

    Within the caller's tenant. Raises MalformedRequest for a filter that no row can match.
    """
    ids = list(command.action_ids) or await _select(journal, caller, command)
    return [await _redrive(journal, caller, command, attempts_of, hold, action_id) for action_id in ids]


async def list_dead_letters(
    journal: Journal, *, tenant: str | None, matching: DeadLetterFilter, page_size: int, before: str = ""
) -> list[Action]:
    """Newest first, without payloads; `before` is the last id of the page before. `tenant` None: of all tenants.

    Raises MalformedRequest as `redrive` does.
    """
    _check(matching)
    size = min(page_size, PAGE_SIZE_MAX)
    async with journal.pool.connection() as connection:
        return await dead_letter.list_page(
            connection, tenant, matching, before=before or None, page_size=size
        )


async def list_queues(journal: Journal, *, tenant: str | None) -> list[QueueDepth]:
    """By name, those in which something waits, and paused ones. `tenant` None: over all tenants."""
    async with journal.pool.connection() as connection:
        return await queue.summarize(connection, tenant, journal.clock.now())


async def _select(journal: Journal, caller: Caller, command: RedriveCommand) -> list[str]:
    _check(command.matching)
    count_max = min(command.count_max, PAGE_SIZE_MAX)
    async with journal.pool.connection() as connection:
        return await dead_letter.list_selected(
            connection, caller.tenant, command.matching, count_max=count_max
        )


def _check(matching: DeadLetterFilter) -> None:
    check_text(matching.queue, matching.reason, *matching.capabilities)


async def _redrive(
    journal: Journal,
    caller: Caller,
    command: RedriveCommand,
    attempts_of: AttemptsOf,
    hold: Hold | None,
    action_id: str,
) -> Selected:
    found = await _find(journal, caller, action_id)
    looked = _look(found, caller, command, action_id)
    if found is None or looked is not None:
        return looked or _refused(action_id, None, "not_found")
    action = found.action
    if command.validate_only:
        return Selected(
            action_id=action_id,
            state=action.state,
            changed=True,
            capability=action.capability,
            sequence=action.sequence,
        )
    attempts = command.attempts or await attempts_of(action)
    if not await _again(journal, action, attempts, _body(action, caller, command, attempts), hold):
        return await _missed(journal, caller, command, action_id)
    journal.hub.publish(action_id)
    if action.approval_id is not None:
        journal.callbacks.ring()
        return Selected(action_id=action_id, state=ActionState.WAITING, changed=True)
    journal.doorbell.ring(line_of(action))
    return Selected(action_id=action_id, state=ActionState.QUEUED, changed=True)


async def _again(journal: Journal, action: Action, attempts: int, body: str, hold: Hold | None) -> bool:
    """What people had to say yes to waits for them again, with an approval of its own. False: it has moved."""
    approval_id = new_action_id()
    async with journal.pool.tx() as connection:
        if not await _has_its_turn(connection, journal, action):
            return False
        if action.approval_id is not None:
            await _end_left_over(connection, journal, action.requester.tenant, action.approval_id)
        done = await dead_letter.redrive(
            connection,
            action,
            attempts=attempts,
            event_body=body,
            approval_id=approval_id,
            now=journal.clock.now(),
        )
        if done and action.approval_id is not None:
            approval = await approvals.get(connection, action.requester.tenant, approval_id)
            assert approval is not None, "it was just written"
            now = await moves.time_of(connection, journal.clock.now())
            redriven = action.changed(sequence=action.sequence + 1)
            await moves.note(connection, redriven, waiting_fact(approval), now)
            await enqueue(journal.callbacks, connection, requested_again(approval), now)
        if hold is not None:
            await hold(connection)
    return done


async def _has_its_turn(connection: Connection, journal: Journal, action: Action) -> bool:
    """Of a run in a session, which is locked from here on: that it is not over, and no other has had the turn since."""
    if action.effect_class != EffectClass.COMPOSED:
        return True
    tenant, action_id = action.requester.tenant, action.action_id
    place = (await session_runs.map_places(connection, tenant, [action_id])).get(action_id)
    if place is None:
        return True
    locked = await sessions.lock(connection, tenant, place.session_id, subject=None, now=journal.clock.now())
    if locked is None or not locked.is_open or locked.is_idle:
        return False
    return locked.active_action_id == action_id


async def _end_left_over(connection: Connection, journal: Journal, tenant: str, approval_id: str) -> None:
    """It ended before it began, so the one before is open yet, if nobody came to it; there is never more than one."""
    approval = await approvals.get(connection, tenant, approval_id)
    gated = None if approval is None else await lock_gated(connection, journal, approval)
    state = None if gated is None else left_over_state(gated)
    if gated is not None and state is not None:
        await end_approval(connection, gated, state)


async def _find(journal: Journal, caller: Caller, action_id: str) -> Found | None:
    async with journal.pool.connection() as connection:
        return await dead_letter.find(connection, caller.tenant, action_id, journal.clock.now())


async def _missed(journal: Journal, caller: Caller, command: RedriveCommand, action_id: str) -> Selected:
    """Somebody was faster: with this very request, or with something that now stands in the way."""
    found = await _find(journal, caller, action_id)
    state = None if found is None else found.action.state
    return _look(found, caller, command, action_id) or _refused(action_id, state, "moved")


def _look(found: Found | None, caller: Caller, command: RedriveCommand, action_id: str) -> Selected | None:
    """What is known without trying; None: it may be tried again."""
    if found is None:
        return _refused(action_id, None, "not_found")
    state = found.action.state
    if command.request and _was_redriven_by(found, caller, command.request):
        return Selected(action_id=action_id, state=state, changed=True)
    rule = _rule_against(found)
    return None if rule is None else _refused(action_id, state, rule, found.action.sequence)


def _rule_against(found: Found) -> str | None:
    action = found.action
    if action.state is ActionState.AMBIGUOUS:
        return "effect_ambiguous"
    if action.state not in TERMINAL:
        return "not_terminal"
    if action.state in (ActionState.DENIED, ActionState.REFUSED):
        return "not_allowed"
    if action.state is ActionState.SUCCEEDED or _has_acted(action):
        return "effect_done"
    if action.parent_id is not None:
        return "child"
    if found.child_is_ambiguous:
        return "child_ambiguous"
    if budget_spent(action.reason or "", action.cause or "") is not None:
        # Nothing resets what a run has spent.
        return "budget_spent"
    if found.is_passed:
        # What it would add now is not what the runs after it were told.
        return "session_went_on"
    return "key_taken" if found.key_is_taken else None


def _has_acted(action: Action) -> bool:
    """What is COMPOSED has not itself, and finds what its steps have done."""
    return action.effect is EffectState.DONE and action.effect_class != "COMPOSED"


def _was_redriven_by(found: Found, caller: Caller, request: str) -> bool:
    if found.last_redrive is None:
        return False
    body = orjson.loads(found.last_redrive)
    return bool(body.get("request") == request and body["requester"] == caller.subject)


def _refused(action_id: str, state: ActionState | None, rule: str, sequence: int = 0) -> Selected:
    return Selected(action_id=action_id, state=state, changed=False, refused_rule=rule, sequence=sequence)


def _body(action: Action, caller: Caller, command: RedriveCommand, attempts: int) -> str:
    body = {
        "attempts": attempts,
        "generation": action.generation + 1,
        "reason": command.reason,
        "requester": caller.subject,
    }
    if command.request:
        body["request"] = command.request
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()
