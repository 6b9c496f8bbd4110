"""The durable side of an attempt, on which the context of its handler stands, as `placet.standing` gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from placet.context import CallerInfo, DelegateInfo, Json, Standing
from placet.failure import CallFailed, Cancelled, Parked
from placet.standing import AsyncStanding, AttemptLost
from placet_server.core.execution.child import (
    UNSTORABLE,
    Calls,
    ChildEnd,
    Holding,
    StepCall,
    check_call,
    told,
)
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.runs import Run
from placet_server.core.execution.slot import SlotHolding
from placet_server.core.execution.steps import Steps
from placet_server.core.publication.boundary import BoundaryName
from placet_server.core.publication.lane import Lane
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.event import EventType
from placet_server.model.json_text import canonicalize_value
from placet_server.model.lifecycle import GOES_ON
from placet_server.store.batch_item import Advance
from placet_server.store.event import LaneItem

if TYPE_CHECKING:
    from placet_server.core.execution.engine import Engine

OPERATION_LENGTH_MAX = 256
CURSOR_BYTES_MAX = 64 * 1024
INPUT_BYTES_MAX = 3 * 2**20


class LeaseLost(AttemptLost):
    """The attempt was given up meanwhile: whatever it does from here no longer counts, so it must stop."""


class Attempt:
    """The durable side of a context: marks, checkpoints and the lane, all under the attempt's lease."""

    # How every attempt begins: on the class, as most of them never change.
    _marking: asyncio.Lock | None = None
    _lane: Lane | None = None
    _is_over = False
    _marks = 0
    _no_marks: asyncio.Event | None = None
    _has_acted = False
    _calls: Calls | None = None
    # Of what is COMPOSED.
    steps: Steps | None = None
    # How much an attempt that goes on has said before.
    _said_before = 0
    # The newest entry of a run, by its ordinal, as long as nobody has heard that it is durable.
    entry: tuple[int, asyncio.Future[Any]] | None = None
    # Told the action as the handler's own ending left it, by whoever speaks for it; None: somebody else's ended it.
    on_settled: Callable[[Action | None], None] | None = None

    def __init__(self, engine: Engine, run: Run) -> None:
        assert run.action is not None
        action = run.action
        self.run = run
        self.action = action
        self.effect_key = action.effect_key
        self._begin = asyncio.get_running_loop().time()
        # The caller's deadline counts from the call, the attempt's own limit from when it was acquired.
        is_callers = run.work.deadline_cause is StopCause.DEADLINE_EXCEEDED
        self.deadline = (run.begin if is_callers else self._begin) + run.work.timeout_seconds
        self.effect_begun = action.effect_begun
        self._engine = engine
        self.journal = engine.journal
        if action.effect_class == "COMPOSED":
            # Before its own time is over, which would cost an attempt.
            park_seconds = min(engine.settings.park_seconds, run.work.timeout_seconds / 2)
            self.steps = Steps(engine.journal, action, park_seconds)

    @property
    def lane(self) -> Lane:
        """Made when the handler first says something: most never do."""
        if self._lane is None:
            self._lane = Lane(
                self.journal,
                tenant=self.action.requester.tenant,
                action_id=self.action.action_id,
                attempt=self.action.attempt,
                lease_id=self.action.lease_id or "",
                begin=self._said_before,
            )
        return self._lane

    @property
    def lane_number(self) -> int:
        return self._said_before if self._lane is None else self._lane.number

    @lane_number.setter
    def lane_number(self, number: int) -> None:
        self._said_before = number

    def end(self) -> bool:
        """The handler has ended: what its tasks left behind say or mark from here is refused.

        True if something of what it said or marked is still under way.
        """
        self._is_over = True
        return self._marks > 0 or self._lane is not None

    async def drain(self) -> None:
        """Everything said is durable, or the lease is lost; and a mark that is under way counts: it may come back to
        somebody who acts on it.
        """
        if self._marks:
            self._no_marks = asyncio.Event()
            await self._no_marks.wait()
        await self.drain_lane()

    async def drain_lane(self) -> None:
        """Everything said so far is durable, or the lease is lost."""
        if self._lane is not None:
            await self._lane.drain()

    async def drain_but_held(self) -> list[LaneItem]:
        """See `Lane.drain_but_held`."""
        return [] if self._lane is None else await self._lane.drain_but_held()

    async def chunk(self, data: Json | bytes) -> None:
        self.check_goes_on()
        await self.lane.chunk(data)

    async def progress(self, message: str, fraction: float | None) -> None:
        self.check_goes_on()
        await self.lane.progress(message, fraction)

    async def effect(self) -> str:
        """Durable before it returns; only the first call writes. Raises ValueError."""
        self._check_acts_itself()
        self._has_acted = True
        return await self.effect_of_child()

    async def effect_of_child(self) -> str:
        """What a child does is done by its parent, too: a parent that is lost is not known to have done nothing."""
        if self._marking is None:
            self._marking = asyncio.Lock()
        async with self._marking:
            if not self.effect_begun and self.action.effect_class != "READ":
                body = f'{{"attempt":{self.action.attempt}}}'
                await self._advance(EventType.EFFECT_STARTED, body, effect_begun=True)
                self._note_begun()
        return self.effect_key

    async def checkpoint(self, operation: str, cursor: Json) -> None:
        """Whoever can name the provider's operation has touched the provider. Raises ValueError."""
        self._check_acts_itself()
        self._has_acted = True
        if UNSTORABLE.search(operation):
            raise ValueError("operation has a NUL or a lone surrogate")
        if not 0 < len(operation) <= OPERATION_LENGTH_MAX:
            raise ValueError(f"operation has 1 to {OPERATION_LENGTH_MAX} characters, not {len(operation)}")
        text = None if cursor is None else canonicalize_value(cursor, bytes_max=CURSOR_BYTES_MAX).text
        body = json.dumps({"provider_operation": operation}, ensure_ascii=False)
        touches = True if self.action.effect_class != "READ" else None
        await self._advance(
            EventType.EFFECT_CHECKPOINTED,
            body,
            effect_begun=touches,
            provider_operation=operation,
            provider_cursor=text,
        )
        if touches:
            self._note_begun()

    async def call(
        self,
        step: str,
        capability: str,
        value: Json,
        version: str,
        timeout_seconds: float | None,
        scopes: frozenset[str] | None,
    ) -> Json:
        """Raises CallFailed unless the child succeeds, and what `canonicalize_value` and `child` raise."""
        text = canonicalize_value(value, bytes_max=INPUT_BYTES_MAX, field="input_json").text
        end = await self.child(
            StepCall(
                step=step,
                capability=capability,
                input_json=text,
                version=version,
                timeout_seconds=timeout_seconds,
                scopes=scopes,
            )
        )
        if end.output_json is None:
            raise CallFailed(told(end.outcome))
        output: Json = json.loads(end.output_json)
        return output

    async def child(self, call: StepCall) -> ChildEnd:
        """Runs another capability as a step of this action, and waits for its end. A refusal is an end.

        Raises ValueError for a step, a timeout or a scope that cannot be, and Cancelled if this attempt may not go on.
        """
        check_call(call)
        self.check_wanted()
        end = await self.calls.call(self, call)
        # Stopped meanwhile, it may not have back what it lent.
        self.check_wanted()
        return end

    @property
    def calls(self) -> Calls:
        if self._calls is None:
            self._calls = Calls(self._engine.children, self._holdings(), self.steps)
        return self._calls

    def _holdings(self) -> Sequence[Holding]:
        capability = self.run.work.capability
        if capability.contract.limits.concurrency_max is None:
            return self.run.holdings
        return (*self.run.holdings, SlotHolding(self.journal, capability, self.action, self.run.is_wanted))

    @property
    def has_done_nothing(self) -> bool:
        """A handler that says when it acts has not said so, and none of its children has done anything."""
        quiet = self.action.effect_marked and not self.action.effect_unknown and not self._has_acted
        return quiet and (self._calls is None or self._calls.effects == 0)

    @property
    def may_have_children(self) -> bool:
        """This attempt or an earlier one has called, or may have."""
        return self._calls is not None or self.action.attempt > 1 or self.action.cause in GOES_ON

    def check_wanted(self) -> None:
        """Raises Cancelled if the attempt was asked to stop, Parked if it is parked, LeaseLost if it has ended."""
        self.check_goes_on()
        if self.run.stop_cause is not None:
            raise Cancelled
        if self.awaited is not None:
            raise Parked

    @property
    def awaited(self) -> tuple[str, ...] | None:
        """For which of its steps it is parked; None: it is not."""
        return None if self.steps is None else self.steps.awaited

    def park_if_quiet(self) -> None:
        """Raises Parked if nobody here can hurry what it waits for, and has the handler cut off where it stands."""
        assert self.steps is not None
        if self.steps.awaited is None:
            self.steps.awaited = self.steps.quiet.park()
            if self.steps.awaited is None:
                return
            self.run.cut_off()
        raise Parked

    async def durably(self, writing: asyncio.Future[Any]) -> Any:
        """What is under way counts when the handler ends: it is waited for, whether the handler is or not."""
        return await asyncio.shield(self.counted(writing))

    def counted(self, writing: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The same for whoever waits for it elsewhere."""
        self._marks += 1
        writing.add_done_callback(self._written)
        return writing

    def _written(self, _: object) -> None:
        self._marks -= 1
        if not self._marks and self._no_marks is not None:
            self._no_marks.set()

    def describe(self, context: Standing) -> None:
        action, caller = self.action, self.run.work.caller
        context.action_id = action.action_id
        context.capability = action.capability
        context.version = action.version
        context.caller = caller_info(caller)
        context.attempt = action.attempt
        context.effect_key = self.effect_key
        context.credential_handle = None if caller.credential is None else caller.credential.handle
        context.provider_operation = action.provider_operation or None
        cursor = action.provider_cursor_json
        context.provider_cursor = None if cursor is None else json.loads(cursor)
        context.trace = self.run.work.trace

    def is_stopped(self) -> bool:
        return self.run.stop_cause is not None

    async def wait_stopped(self) -> None:
        await self.run.cancelled.wait()

    def time_left(self) -> float:
        return max(0.0, self.deadline - asyncio.get_running_loop().time())

    def now_us(self) -> int:
        """The store's time, as far as this process can tell: the start by the store's clock, the span by
        its own.
        """
        span = asyncio.get_running_loop().time() - self._begin
        return (self.action.start_time_us or 0) + int(span * 1_000_000)

    def check_goes_on(self) -> None:
        if self._is_over:
            raise LeaseLost

    def reached(self, boundary: BoundaryName) -> None:
        """Between two durable facts, where the process may end."""
        self.journal.boundary.reached(boundary, self.action.capability)

    def _check_acts_itself(self) -> None:
        if self.action.effect_class == "COMPOSED":
            raise ValueError("what is COMPOSED does nothing itself: let an action that it calls do it")

    def _note_begun(self) -> None:
        if not self.effect_begun:
            self.effect_begun = True
            self.reached("before_provider_call")

    async def _advance(
        self,
        type_: EventType,
        body: str,
        *,
        effect_begun: bool | None = None,
        provider_operation: str | None = None,
        provider_cursor: str | None = None,
    ) -> None:
        self.check_goes_on()
        self._marks += 1
        try:
            written = await self.journal.writer.advance(
                Advance(
                    tenant=self.action.requester.tenant,
                    action_id=self.action.action_id,
                    lease_id=self.action.lease_id or "",
                    state="RUNNING",
                    effect_begun=effect_begun,
                    provider_operation=provider_operation,
                    provider_cursor=provider_cursor,
                    event_type=type_.value,
                    event_body=body,
                )
            )
        finally:
            self._written(None)
        if written is None:
            raise LeaseLost
        self.journal.hub.publish(self.action.action_id)


def attempt_of(context: AsyncStanding) -> Attempt:
    """For handlers that are our own: behind a connector."""
    attempt = context.attempt_stood_on
    assert isinstance(attempt, Attempt)
    return attempt


def caller_info(caller: Caller) -> CallerInfo:
    return CallerInfo(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=caller.kind.value.lower(),
        roles=caller.roles,
        groups=caller.groups,
        scopes=tuple(sorted(caller.scopes)),
        delegation=tuple(
            DelegateInfo(subject=each.subject, kind=each.kind.value.lower()) for each in caller.delegation
        ),
    )
