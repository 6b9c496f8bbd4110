"""Taking work from the queues: never more than can run at once, and nothing is held here that only waits.

One claim at a time. What waits is known by line, not by action: which lines have work (`ready_lines.py`), who gets
how many slots (`core/execution/fairness.py`), one statement that claims, and every action it gave is started before
anything else is awaited. A line that gave less than it was asked for is empty, or others are taking from it, and is
forgotten until the next look.

What a contract limits over all servers is claimed apart, line by line, as slots are taken in the same tx.

Why plain handlers may not have every thread: who executes is refused when there is none, and he waits; who has
submitted does not."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import NamedTuple

from placet.app import Tool
from placet_server.core.admission.dispatch_slot import Slot, Slots
from placet_server.core.admission.queue_counts import QueueCounts
from placet_server.core.admission.ready_lines import ReadyLines
from placet_server.core.admission.slot import Granted, claim_in_slots
from placet_server.core.admission.stale_place import put_right
from placet_server.core.admission.take import Taken, take
from placet_server.core.execution.fairness import share_out
from placet_server.core.execution.runs import Run
from placet_server.core.kernel import Kernel
from placet_server.core.publication.line import line_of
from placet_server.model.action import PRIORITY_DEFAULT, QUEUE_DEFAULT, Action
from placet_server.model.capability import Capability
from placet_server.model.gate_errors import CapabilityNotFound, HandlerNotFound
from placet_server.model.line import PRIORITY_LAST, Line, ReadyLine, Share
from placet_server.model.run_errors import AgentUnavailable
from placet_server.store import queue
from placet_server.store.pool import Pool
from placet_server.store.queue import LineShare
from placet_server.store.slot import Held

# A claim that is not answered so soon is given up; what it took is found by its owner, who looks at nothing younger
# than five seconds.
ANSWER_SECONDS = 4.0
THREADS_PART = 0.75

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """`slots_max`: queued actions that run here at once. `claim_max`: how many one statement takes. `lines_max`: how
    many lines are known at a time. Inputs longer than `input_bytes_max` are read one by one. `agent_runs_max`:
    how many runs may wait here for a model beside them, without a slot."""

    slots_max: int = 256
    claim_max: int = 100
    lines_max: int = 256
    poll_seconds: float = 0.25
    input_bytes_max: int = 64 * 1024
    agent_runs_max: int = 512


class _Route(NamedTuple):
    """A share of a line that can be run here."""

    share: Share
    capability: Capability
    tool: Tool


class Dispatcher:
    """Belongs to one event loop, with a pool of its own, so that nobody waits for claims. One `run_once` at a time."""

    def __init__(self, kernel: Kernel, *, pool: Pool, settings: QueueSettings) -> None:
        self.settings = settings
        self.is_claiming = False
        self.counts = QueueCounts()
        self._kernel = kernel
        self._engine = kernel.engine
        self._pool = pool
        self._lines = ReadyLines(
            kernel.engine.handlers,
            pool,
            lines_max=settings.lines_max,
            poll_seconds=settings.poll_seconds,
            room_max=settings.slots_max,
        )
        self._after_tenant = ""
        self._slots = Slots(settings.slots_max, kernel.journal.doorbell.ring, settings.agent_runs_max)
        self._context = copy_context()
        kernel.engine.slots.freed = self._freed

    async def run_once(self, rung: Collection[Line] = ()) -> bool:
        """At most one claim. `rung`: lines that are said to have work. True: there may be more at once.

        Raises StoreUnavailable."""
        self._lines.note(rung)
        if self._engine.journal.doorbell.take_missed():
            self._lines.look_soon()
        if self._free() <= 0:
            return False
        if self.look_seconds() <= 0:
            await self._lines.look()
        routes = await self._routes()
        # While capabilities were looked up the server may have begun to leave.
        if not routes or self._free() <= 0:
            return False
        return await self._claim_each(routes)

    @property
    def running(self) -> int:
        return self._slots.running

    @property
    def is_busy(self) -> bool:
        """Something is claimed, or about to be, that has not ended here."""
        return self.is_claiming or self._slots.in_hand > 0

    async def write_counts(self) -> None:
        """Raises StoreUnavailable."""
        await self.counts.write(self._engine.journal)

    def slot_for_child(self, capability: Capability, tool: Tool, tenant: str) -> Slot | None:
        """Of one that begins here at once. None: it has to stand in line, because somebody might wait for the slot, or
        because others have to be asked whether it may begin.
        """
        if capability.is_limited or not self._engine.handlers.is_here(capability):
            return None
        free = self._slots.free()
        if self._kernel.is_draining or free <= 0:
            return None
        if self._lines.known and 2 * free <= self.settings.slots_max:
            return None
        if not tool.is_async and self._free_threads() <= 0:
            return None
        return self._slots.take(tenant, int(not tool.is_async))

    def follow(self, task: asyncio.Task[object], run: Run | None, queue_name: str, slot: Slot) -> None:
        """What is of a queue, whether it stood in line or not, has the slot until the task has ended."""

        def ended(task: asyncio.Task[object]) -> None:
            slot.end()
            if run is not None and run.task is task and run.has_ended_its_action:
                self.counts.settled(queue_name, slot.tenant)

        task.add_done_callback(ended)

    def context(self) -> Context:
        """For what begins here: of who calls it, it knows as little as what stood in line."""
        return self._context.copy()

    def look_seconds(self) -> float:
        """Until lines are looked for again, whether the doorbell rings or not. Without a free slot nobody looks."""
        if self._free() <= 0:
            return self.settings.poll_seconds
        return self._lines.look_seconds()

    def _free(self) -> int:
        if self._kernel.is_draining:
            return 0
        return min(self._slots.free(), self.settings.claim_max)

    def _free_threads(self) -> int:
        threads = self._engine.threads
        return min(threads.free(), threads.share(THREADS_PART) - self._slots.threads)

    async def _routes(self) -> list[_Route]:
        """What may be claimed of which line, and what it is run with."""
        await self._forget_foreign()
        no_thread = self._free_threads() <= 0
        lines = [
            ready
            for ready in self._lines.known.values()
            if not (no_thread and self._is_plain(ready.line)) and self._lines.room(ready.line) > 0
        ]
        shares, self._after_tenant = share_out(lines, self._free(), self._after_tenant, self._slots.by_tenant)
        routes = []
        for share in shares:
            line = share.line
            capability = await self._resolve(line)
            tool = None if capability is None else self._engine.handlers.find_for(capability, line.tenant)
            if tool is not None and capability is not None:
                routes.append(_Route(share, capability, tool))
            else:
                del self._lines.known[line]
        return self._within_rooms(routes)

    async def _forget_foreign(self) -> None:
        """Lines that are neither a tool's nor a program's take no share of what is free here."""
        for line in [line for line in self._lines.known if self._lines.tool(line) is None]:
            capability = await self._resolve(line)
            if capability is None or self._engine.handlers.find_for(capability, line.tenant) is None:
                del self._lines.known[line]

    def _is_plain(self, line: Line) -> bool:
        tool = self._lines.tool(line)
        return tool is not None and not tool.is_async

    def _children_only(self, line: Line) -> bool:
        handlers = self._engine.handlers
        return self._slots.children_only or handlers.children_only(line.capability, line.version, line.tenant)

    async def _resolve(self, line: Line) -> Capability | None:
        """None: known to no catalogue that this process sees, for now."""
        try:
            found = await self._kernel.catalog.resolve(line.tenant, line.capability, line.version)
        except (CapabilityNotFound, HandlerNotFound, AgentUnavailable):
            self._lines.pass_over_unroutable(line)
            return None
        return found.capability

    def _within_rooms(self, routes: list[_Route]) -> list[_Route]:
        return [
            route._replace(
                share=route.share._replace(
                    count_max=min(route.share.count_max, self._lines.room(route.share.line))
                )
            )
            for route in routes
        ]

    def _within_threads(self, routes: list[_Route]) -> list[_Route]:
        left = self._free_threads()
        within = []
        for route in routes:
            if not route.tool.is_async:
                count = min(route.share.count_max, left)
                left -= count
                route = route._replace(share=route.share._replace(count_max=count))
            if route.share.count_max > 0:
                within.append(route)
        return within

    async def _claim_each(self, routes: Sequence[_Route]) -> bool:
        """In one statement what no contract limits, then each line that one does."""
        groups = [[route for route in routes if not route.capability.is_limited]]
        groups += ([route] for route in routes if route.capability.is_limited)
        more = False
        for group in groups:
            within = self._within_threads(group)
            if within and self._free() > 0:
                more |= await self._claim(within)
        return more and self._free() > 0

    async def _claim(self, routes: Sequence[_Route]) -> bool:
        plain = sum(route.share.count_max for route in routes if not route.tool.is_async)
        for _ in range(plain):
            self._engine.threads.reserve()
        begin = asyncio.get_running_loop().time()
        self.is_claiming = True
        try:
            granted = await self._ask(routes)
        finally:
            self.is_claiming = False
            for _ in range(plain):
                self._engine.threads.release()
        picked = granted.picked
        for action in (each.action for each in picked if each.action is not None):
            self._engine.journal.boundary.reached("claimed", action.capability)
        # From the answer to here nothing is awaited, nor until all of it runs: what this boot holds and does not run,
        # the ownership check gives away.
        begin_until = begin + min(ANSWER_SECONDS, self._kernel.lease_seconds / 2)
        claimed = self._start_all(routes, granted, begin_until)
        stale = [(each.tenant, each.action_id) for each in picked if each.action is None]
        righted = await put_right(self._engine.journal, stale) if stale else 0
        if granted.is_full:
            return bool(self._lines.known)
        known = bool(self._lines.known) or self.look_seconds() <= 0
        return claimed + righted > 0 and known

    async def _ask(self, routes: Sequence[_Route]) -> Granted:
        """All of them unlimited, or one that is limited."""
        bytes_max = self.settings.input_bytes_max
        shares = [_line_share(route, self._children_only(route.share.line)) for route in routes]
        capability = routes[0].capability
        if capability.is_limited:
            return await claim_in_slots(
                self._engine, self._pool, capability, shares[0], input_bytes_max=bytes_max
            )
        async with self._pool.connection() as connection:
            picked = await queue.claim_batch(
                connection,
                shares,
                boot_id=self._kernel.boot_id,
                input_bytes_max=bytes_max,
                now=self._kernel.journal.clock.now(),
            )
        return Granted(picked, {}, is_full=False)

    def _start_all(self, routes: Sequence[_Route], granted: Granted, begin_until: float) -> int:
        picked = granted.picked
        by_line, known = {route.share.line: route for route in routes}, self._lines.known
        counts: Counter[Line] = Counter()
        for action in (each.action for each in picked if each.action is not None):
            line = line_of(action)
            route = by_line[line]
            head = _place_of(line, action)
            known[line] = max(known[line], head, key=_order) if counts[line] else head
            counts[line] += 1
            held = granted.held.get(action.lease_id or "")
            self._start(action, route, begin_until, held)
        claimed = counts.total()
        if claimed:
            self._engine.observer.claims(claimed)
        if granted.is_full:
            self._lines.pass_over_full(routes[0].share.line)
        elif claimed == len(picked):
            self._forget_emptied(routes, counts)
        return claimed

    def _forget_emptied(self, routes: Sequence[_Route], counts: Counter[Line]) -> None:
        for share in (route.share for route in routes):
            if counts[share.line] < share.count_max:
                del self._lines.known[share.line]
                if share.priority_last < PRIORITY_LAST or self._slots.children_only:
                    self._lines.look_soon()
        self._lines.look_if_none()

    def _start(self, action: Action, route: _Route, begin_until: float, held: Held | None) -> None:
        """A fault with one must not keep the others from being started."""
        self._engine.journal.hub.publish(action.action_id)
        waited_us = (action.start_time_us or 0) - (action.ready_time_us or 0)
        self._engine.observer.claimed(action.queue or QUEUE_DEFAULT, waited_us / 1_000_000)
        slot = self._slots.take(action.requester.tenant, int(not route.tool.is_async))
        taken = Taken(action, route.capability, route.tool, begin_until, (slot,))
        try:
            task = take(self._engine, taken)
        except Exception:
            _log.exception("a claimed action cannot be started", extra={"action_id": action.action_id})
            slot.end()
            return
        run = self._engine.runs.get(action.action_id)
        self.counts.claimed(action.queue or QUEUE_DEFAULT, slot.tenant)
        self.follow(task, run, action.queue or QUEUE_DEFAULT, slot)
        if held is not None:
            engine = self._engine
            engine.slots.give_back_after(engine.supervisor, engine.journal, task, held)

    def _freed(self, capability: str, tenant: str) -> None:
        if self._lines.take_up_freed(capability, tenant):
            self._engine.journal.doorbell.ring()


def _line_share(route: _Route, children_only: bool) -> LineShare:
    limits = route.capability.contract.limits
    return LineShare(
        line=route.share.line,
        count_max=route.share.count_max,
        priority_last=route.share.priority_last,
        children_only=children_only,
        timeout_default_seconds=limits.timeout_default_seconds,
        timeout_max_seconds=limits.timeout_max_seconds,
    )


def _place_of(line: Line, action: Action) -> ReadyLine:
    """Where in line it stood: what is left stands behind it."""
    priority = action.priority if action.is_submitted else PRIORITY_DEFAULT
    return ReadyLine(line, priority, action.ready_time_us or 0)


def _order(ready: ReadyLine) -> tuple[int, int]:
    return ready.priority, ready.ready_time_us
