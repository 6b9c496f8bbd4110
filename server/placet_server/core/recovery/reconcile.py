"""Asking what became of effects that may have happened, and saying so.

No lease is taken for asking. A verdict is written as a rescuer writes: under the lease of the lost attempt, and only
onto the row as it was read. So the late true answer of that attempt, a person's verdict and another reconciler's cannot
win beside it: whichever comes first ends the doubt, and the others find it ended. A cancel that comes while somebody is
asked moves the row, and is heeded by asking again.

Who does not know is asked again, after longer and longer pauses; after the contract's time it is a person's to find
out, and an event says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import orjson

from placet.app import Tool
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.finding import (
    Committed,
    Finding,
    NotCommitted,
    NotKnown,
    StillRunning,
    judge_finding,
)
from placet_server.core.execution.lookup import Question, look_up
from placet_server.core.publication.read import now_us
from placet_server.core.publication.settle import settle
from placet_server.core.publication.wake import wake_parent_of
from placet_server.core.recovery.resolve import GRACE_SECONDS
from placet_server.model.action import Action
from placet_server.model.capability import Capability
from placet_server.model.contract import Reconcile
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import reconcile as rows
from placet_server.store.reconcile import FIRST, Due, Kind

COUNT_MAX = 16
KINDS_MAX = 256
LOOKUP_SECONDS_MAX = 30.0
# Longer than a lookup and its writing take: until then nobody else asks.
VISIBLE_SECONDS = 60.0
MOVED_SECONDS = 1.0
REPAIR_SECONDS = 60.0
REPAIR_MAX = 1000
FINDING_LENGTH_MAX = 512

# What is told of who was not asked.
NO_LOOKUP = "no_lookup"
NOT_AUTOMATIC = "not_automatic"

_log = logging.getLogger(__name__)


class Route(NamedTuple):
    """Whom this process can ask."""

    capability: Capability
    tool: Tool


RouteOf = Callable[[Kind], Awaitable[Route | None]]
"""None: nobody here."""


class Reconciler:
    """Belongs to one event loop. One `run_once` at a time; what it asks goes on in tasks of its own."""

    def __init__(self, engine: Engine, route_of: RouteOf) -> None:
        self._engine = engine
        self._route_of = route_of
        self._under_way: set[asyncio.Task[None]] = set()
        self._after = FIRST
        self._repair_at = 0.0
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """There may be something to ask about."""
        self._hurry.set()

    async def pause(self, seconds: float) -> None:
        """So long, or until somebody says that there may be something."""
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def run_once(self) -> bool:
        """Begins to ask about what is due, as much as the budget allows. True: there may be more."""
        await self._repair()
        free = min(COUNT_MAX, self._engine.lookups.free() - len(self._under_way))
        if free <= 0:
            return False
        routes = await self._routes()
        if not routes:
            return False
        due = await self._claim(routes, free)
        for each in due:
            route = routes[Kind(each.action.capability, each.action.version, each.action.requester.tenant)]
            task = self._engine.supervisor.start(self._reconcile_or_leave(each, route))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return len(due) == free

    async def idle(self) -> None:
        """Once everybody who was asked has answered."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _repair(self) -> None:
        if time.monotonic() < self._repair_at:
            return
        journal = self._engine.journal
        async with journal.pool.connection() as connection:
            added = await rows.repair(connection, count_max=REPAIR_MAX, now=journal.clock.now())
            dropped = await rows.drop_settled(connection, count_max=REPAIR_MAX)
        if REPAIR_MAX not in (added, dropped):
            self._repair_at = time.monotonic() + REPAIR_SECONDS

    async def _routes(self) -> dict[Kind, Route]:
        journal = self._engine.journal
        async with journal.pool.connection() as connection:
            kinds = await rows.list_kinds(
                connection, after=self._after, count_max=KINDS_MAX, now=journal.clock.now()
            )
        self._after = kinds[-1] if len(kinds) == KINDS_MAX else FIRST
        found = {kind: await self._route_of(kind) for kind in kinds}
        return {kind: route for kind, route in found.items() if route is not None}

    async def _claim(self, routes: dict[Kind, Route], free: int) -> list[Due]:
        journal = self._engine.journal
        async with journal.pool.connection() as connection:
            return await rows.claim_due(
                connection,
                list(routes),
                each_max=max(1, free // len(routes)),
                count_max=free,
                visible_seconds=VISIBLE_SECONDS,
                now=journal.clock.now(),
            )

    async def _reconcile_or_leave(self, due: Due, route: Route) -> None:
        """While the store is away it is left as it is, and comes due again."""
        try:
            await self._reconcile(due, route)
        except StoreUnavailable as error:
            action = due.action
            _log.warning(
                "an effect in doubt is asked about again later: %s",
                error,
                extra={"action_id": action.action_id, "capability": action.capability},
            )

    async def _reconcile(self, due: Due, route: Route) -> None:
        action, rule = due.action, route.capability.contract.reconcile or Reconcile()
        if action.state is not ActionState.AMBIGUOUS:
            await self._forget(action)
        elif route.tool.lookup is None:
            await self._note(due, NO_LOOKUP, give_up=True)
        elif not (rule.automatic or due.wanted):
            await self._note(due, NOT_AUTOMATIC, give_up=True)
        else:
            await self._ask(due, route, rule)

    async def _ask(self, due: Due, route: Route, rule: Reconcile) -> None:
        action, journal = due.action, self._engine.journal
        journal.boundary.reached("reconciliation_started", action.capability)
        finding = await self._find(action, route)
        if isinstance(finding, NotCommitted) and (due.child_may_act or _has_earlier(action)):
            # Who knows that the last attempt has ended does not know it of those before, which may run elsewhere, nor
            # of what it has called.
            finding = replace(finding, not_running=False)
        now = await now_us(journal)
        is_over = _is_over(due, route)
        verdict = judge_finding(action, finding, is_over=is_over, now_us=now)
        if verdict is None:
            elapsed_seconds = (now - due.since_time_us) / 1_000_000
            is_final = is_over and isinstance(finding, NotKnown) and finding.is_final
            give_up = not rule.automatic or is_final or elapsed_seconds >= rule.elapsed_seconds_max
            await self._later(due, rule, finding, give_up=give_up)
            return
        resolution = _resolution(action, finding)
        settled = await settle(journal, action, verdict, as_read=True, resolution=resolution)
        if settled is None:
            # A cancel, a person or the lost attempt itself was faster.
            await self._note(due, _told(finding), delay_seconds=MOVED_SECONDS)
        # Also if it is settled: that it is so may be the lost attempt's doing, which does not look here.
        await self._forget(action)
        if settled is None:
            return
        journal.boundary.reached("reconciliation_completed", action.capability)
        self._engine.observer.reconciled(settled)

    async def _find(self, action: Action, route: Route) -> Finding:
        if self._engine.runs.get(action.action_id) is not None:
            return StillRunning()
        seconds = min(LOOKUP_SECONDS_MAX, route.capability.contract.limits.timeout_max_seconds)
        question = Question(action=action, capability=route.capability, seconds=seconds)
        return await look_up(self._engine, route.tool, question)

    async def _later(self, due: Due, rule: Reconcile, finding: Finding, *, give_up: bool) -> None:
        action, told, journal = due.action, _told(finding), self._engine.journal
        if give_up:
            body = orjson.dumps({"asked": due.asked, "finding": told}, option=orjson.OPT_SORT_KEYS).decode()
            async with journal.pool.connection() as connection:
                give_up = await rows.give_up(connection, action, event_body=body, now=journal.clock.now())
            journal.hub.publish(action.action_id)
            _log.warning(
                "nobody can say what became of the effect: it is an operator's now",
                extra={"action_id": action.action_id, "capability": action.capability, "finding": told},
            )
        await self._note(due, told, delay_seconds=rule.delay_seconds(due.asked), give_up=give_up)

    async def _note(self, due: Due, told: str, *, delay_seconds: float = 0.0, give_up: bool = False) -> None:
        journal = self._engine.journal
        async with journal.pool.connection() as connection:
            await rows.note_finding(
                connection,
                due,
                finding=told,
                delay_seconds=delay_seconds,
                give_up=give_up,
                now=journal.clock.now(),
            )
        if give_up:
            await wake_parent_of(journal, due.action)

    async def _forget(self, action: Action) -> None:
        async with self._engine.journal.pool.connection() as connection:
            await rows.forget(connection, action.requester.tenant, action.action_id)


def _is_over(due: Due, route: Route) -> bool:
    """When it was claimed, which is before anybody was asked."""
    deadline = due.action.deadline_us
    if due.child_may_act:
        return False
    if deadline is not None and _has_earlier(due.action):
        span_seconds = route.capability.contract.limits.timeout_max_seconds
        deadline = max(deadline, (due.action.start_time_us or 0) + int(span_seconds * 1_000_000))
    return deadline is None or deadline + int(GRACE_SECONDS * 1_000_000) <= due.claim_time_us


def _has_earlier(action: Action) -> bool:
    """Attempts that were lost before, and may still act: only IDEMPOTENT work is tried again while it is in doubt. None
    of them has more time than one that began with the last attempt and had all that the contract gives.
    """
    return action.effect_class == "IDEMPOTENT" and action.attempt > 1


def _told(finding: Finding) -> str:
    """One line of what was found."""
    match finding:
        case Committed():
            return "committed"
        case NotCommitted():
            return f"not_committed: {finding.message}"[:FINDING_LENGTH_MAX].rstrip(": ")
        case StillRunning():
            return "still_running"
        case NotKnown():
            return f"not_known: {finding.message}"[:FINDING_LENGTH_MAX].rstrip(": ")


def _resolution(action: Action, finding: Finding) -> dict[str, str]:
    """As a person's verdict is told: whose it is, and on what it rests."""
    is_done = isinstance(finding, Committed)
    message = finding.message if isinstance(finding, NotCommitted) else ""
    return {
        "evidence": f"lookup of {action.capability} version {action.version}",
        "reason": message[:FINDING_LENGTH_MAX]
        or ("the effect is there" if is_done else "the effect is not there"),
        "requester": "server",
        "verdict": "DONE" if is_done else "NOT_DONE",
    }
