"""What a program of ours has of its attempt: what its run remembers, its calls of others, and the places where a crash
must cost nothing.

A stretch is one attempt, or what of it lies between two waits: it begins with `entries.read()`, and ends by a value, a
Failure, or `Ended`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from placet.standing import AsyncStanding
from placet_server.core.execution.attempt import Attempt, LeaseLost, attempt_of
from placet_server.core.execution.child import PROGRAM_STEP, ChildEnd, StepCall, check_call
from placet_server.core.execution.program import Asks, RunEntries
from placet_server.core.publication import entries as memory
from placet_server.core.publication.boundary import BoundaryName
from placet_server.core.publication.spent import spent_by_steps
from placet_server.model.action import Action
from placet_server.model.entry import Entry, EntryType, Opened
from placet_server.model.entry_text import of_text
from placet_server.model.usage import Counters
from placet_server.store.batch_item import EntryItem, Written
from placet_server.store.run import Remembered

_WRITTEN: dict[EntryType, BoundaryName] = {
    EntryType.OPENED: "run_opened",
    EntryType.REQUESTED: "turn_requested",
    EntryType.ANSWERED: "turn_answered",
    EntryType.FAILED: "turn_failed",
    EntryType.COMPACTED: "run_compacted",
}


def stretch_of(context: AsyncStanding) -> Stretch:
    """Of the context that a program is called with."""
    return Stretch(attempt_of(context))


class Stretch:
    """Of one attempt of what is COMPOSED."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.entries: RunEntries = _Entries(attempt)

    def reached(self, boundary: BoundaryName) -> None:
        """See `Attempt.reached`."""
        self.attempt.reached(boundary)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Meanwhile it needs memory and a socket, and others may have its place."""
        lent = [holding for holding in self.attempt.run.holdings if isinstance(holding, Asks)]
        for holding in lent:
            holding.ask()
        try:
            yield
        finally:
            for holding in lent:
                holding.asked()

    async def delta(self, turn: int, request: int, kind: Literal["text", "reasoning"], text: str) -> None:
        """What a model is saying is told, once there is room for more. Raises LeaseLost."""
        self.attempt.check_goes_on()
        await self.attempt.lane.delta(turn, request, kind, text)

    async def call_all(
        self,
        calls: Sequence[StepCall],
        told: Callable[[int, ChildEnd], None] = lambda index, end: None,
        stood: Callable[[int, Action], None] = lambda index, child: None,
    ) -> list[ChildEnd]:
        """All of them at once, and how each has ended; a refusal is an end. `told`: of each as it ends, by its index;
        `stood`: of each that is an action, as that stands when it is found or made. An entry that was appended ahead
        is durable with the first of them at the latest.

        Raises Parked, Cancelled, LeaseLost, and ValueError for a step, a timeout or a scope that cannot be.
        """
        for call in calls:
            check_call(call, PROGRAM_STEP)
        self.attempt.check_wanted()
        ends: dict[int, ChildEnd] = {}
        failure = await self._at_once(calls, ends, told, stood)
        if failure is not None:
            try:
                raise failure
            finally:
                # It holds this frame, which must not hold it.
                del failure
        self.attempt.check_wanted()
        return [ends[index] for index in range(len(calls))]

    async def _at_once(
        self,
        calls: Sequence[StepCall],
        ends: dict[int, ChildEnd],
        told: Callable[[int, ChildEnd], None],
        stood: Callable[[int, Action], None],
    ) -> BaseException | None:
        """What the first of them raised that did; the others were cancelled then."""
        try:
            with self._until_all_stand(calls, stood) as stands:
                async with asyncio.TaskGroup() as group:
                    durable = group.create_task(self.entries.written())
                    for index, call in enumerate(calls):
                        group.create_task(self._call(index, call, ends, stands, told, durable))
        except BaseExceptionGroup as several:
            # The frame that made it holds it, too.
            several.__traceback__ = None
            return several.exceptions[0]
        return None

    async def _call(
        self,
        index: int,
        call: StepCall,
        ends: dict[int, ChildEnd],
        stands: Callable[[str, Action | None], None],
        told: Callable[[int, ChildEnd], None],
        durable: asyncio.Task[None],
    ) -> None:
        end = await self.attempt.calls.call(self.attempt, call)
        # A refusal may come before the entry that makes the call, and nothing is told of what might be gone.
        await durable
        stands(call.step, None)
        ends[index] = end
        self.reached("call_told")
        told(index, end)

    @contextmanager
    def _until_all_stand(
        self, calls: Sequence[StepCall], stood: Callable[[int, Action], None]
    ) -> Iterator[Callable[[str, Action | None], None]]:
        """Once each of them is a row, or has ended without one, all are admitted, and nobody was told anything more."""
        attempt = self.attempt
        assert attempt.steps is not None, "what runs a program is COMPOSED"
        attempt.calls.begin_turn()
        open_steps = {call.step: index for index, call in enumerate(calls)}

        def stands(step: str, child: Action | None) -> None:
            if step in open_steps:
                index = open_steps.pop(step)
                if child is not None:
                    stood(index, child)
                if not open_steps:
                    self.reached("calls_admitted")

        attempt.steps.stands = stands
        try:
            yield stands
        finally:
            attempt.steps.stands = None


class _Ahead(NamedTuple):
    """An entry that nobody has heard of yet that it is durable."""

    entry: Entry
    item: EntryItem
    writing: asyncio.Future[Written | None]


class _Entries:
    """See `RunEntries`. What was said before an entry is durable before it, and its event says how much that was."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ordinal: int | None = None
        self._model = ""
        self._ahead: _Ahead | None = None

    async def read(self) -> Remembered:
        attempt = self._attempt
        found = await memory.read(attempt.journal, attempt.action)
        self._ordinal = found.entries[-1].ordinal if found.entries else 0
        if found.entries:
            self._note(found.entries[0])
        return found

    async def spent_below(self, steps: Sequence[str]) -> dict[str, Counters]:
        action = self._attempt.action
        return await spent_by_steps(self._attempt.journal, action, action.action_id, steps)

    async def spent_before(self) -> Counters:
        action = self._attempt.action
        step, is_further, _ = action.step_path.partition("#")
        if not is_further or action.parent_id is None:
            return Counters()
        found = await spent_by_steps(self._attempt.journal, action, action.parent_id, [step])
        return found.get(step, Counters())

    async def has_run(self, active_ms: int) -> None:
        await memory.has_run(self._attempt.journal, self._attempt.action, active_ms)

    async def append(
        self, entry: Entry, counters: Counters, *, seen: Sequence[str] = (), ahead: bool = False
    ) -> None:
        attempt = self._attempt
        if self._ordinal is None:
            raise RuntimeError("what a run remembers is read before anything is added to it")
        await self.written()
        attempt.check_goes_on()
        said = await attempt.drain_but_held()
        self._note(entry)
        item = memory.item_of(
            attempt.action,
            entry,
            counters,
            ordinal=self._ordinal + 1,
            model=self._model,
            lane_number=attempt.lane_number,
            seen=seen,
            said=said,
        )
        writing = attempt.counted(attempt.journal.writer.append(item))
        self._ordinal += 1
        attempt.entry = (self._ordinal, writing)
        self._ahead = _Ahead(entry, item, writing)
        if not ahead:
            await self.written()

    async def begun(self) -> None:
        await self._attempt.journal.writer.let_begin()

    async def written(self) -> None:
        ahead, attempt = self._ahead, self._attempt
        if ahead is None:
            return
        if await asyncio.shield(ahead.writing) is None and not await memory.is_written(
            attempt.journal, attempt.action, ahead.item, ahead.entry.digest
        ):
            raise LeaseLost
        self._ahead = attempt.entry = None
        attempt.journal.hub.publish(attempt.action.action_id)
        attempt.reached(_WRITTEN[ahead.entry.type])

    def _note(self, entry: Entry) -> None:
        if entry.type is EntryType.OPENED:
            opened = of_text(entry.type, entry.body)
            assert isinstance(opened, Opened)
            self._model = opened.model
