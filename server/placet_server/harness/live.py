"""The calls of a run as they are made, and what is told of it while it runs: what its model is saying, and what becomes
of those calls. That travels in the lane of the attempt. No run goes on from it: what a run remembers are its entries,
which have the whole answer.

Each call is told of once, however often the run begins from its start: one that goes on looks first at what was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.lane import tools_told
from placet_server.harness.delegate import input_of
from placet_server.harness.plan import PlannedCall
from placet_server.harness.provider.answer import Delta, OnDelta
from placet_server.model.action import Action
from placet_server.model.event import EventType
from placet_server.model.lifecycle import ActionState


class Live:
    """Of one stretch."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._told: set[tuple[EventType, int, int]] | None = None

    def heard(self, turn: int, request: int) -> OnDelta:
        """Who is told what the model says in this try of the turn."""

        async def on_delta(delta: Delta) -> None:
            await self._stretch.delta(turn, request, delta.kind, delta.text)

        return on_delta

    async def call_all(self, turn: int, planned: Sequence[PlannedCall]) -> dict[int, ChildEnd]:
        """See `Stretch.call_all`. By the numbers of the calls."""
        if self._told is None:
            self._told = await self._told_before()

        def stood(index: int, child: Action) -> None:
            waiting = child.state is ActionState.WAITING
            said = {"action_id": child.action_id, "waiting": waiting}
            self._tell(EventType.TOOL_STARTED, turn, planned[index], said)

        def ended(index: int, end: ChildEnd) -> None:
            self._tell(EventType.TOOL_FINISHED, turn, planned[index], _ended(end))

        ends = await self._stretch.call_all([_step(call) for call in planned], ended, stood)
        return {call.call: end for call, end in zip(planned, ends, strict=True)}

    async def _told_before(self) -> set[tuple[EventType, int, int]]:
        attempt = self._stretch.attempt
        if not attempt.may_have_children:
            return set()
        return await tools_told(attempt.journal, attempt.action)

    def _tell(self, type_: EventType, turn: int, call: PlannedCall, said: dict[str, Any]) -> None:
        assert self._told is not None
        assert call.tool is not None
        known = (type_, turn, call.call)
        if known not in self._told:
            self._told.add(known)
            body = {"turn": turn, "call": call.call, "tool": call.tool.name, **said}
            self._stretch.attempt.lane.note(type_, body)


def _step(call: PlannedCall) -> StepCall:
    assert call.tool is not None
    scopes = call.tool.scopes
    return StepCall(
        step=call.step,
        capability=call.tool.name,
        version=call.tool.version,
        input_json=input_of(call.input_json, call.slice) if call.tool.delegate else call.input_json,
        scopes=None if scopes is None else frozenset(scopes),
        contract_digest=call.tool.contract_digest,
    )


def _ended(end: ChildEnd) -> dict[str, Any]:
    """Without words: those are in the action, for who may see it."""
    outcome = end.outcome
    return {
        "action_id": outcome.action_id,
        "kind": outcome.kind.value,
        "reason": outcome.reason,
        "effect": None if outcome.effect is None else outcome.effect.value,
        "attempt": outcome.attempt,
        "retry_advice": outcome.retry_advice.value,
        "retry_delay_seconds": outcome.retry_delay_seconds,
        "failure_code": outcome.failure_code,
    }
