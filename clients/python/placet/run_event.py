"""What happens in the run of an agent, typed: what its model says, what it calls, what it waits for.

What is not told by a class of its own is a RunEvent; each has the message that it was made of. Text is what the model
is saying, not what it has said: after `Restarted` all that came for its turn is void, and the answer is the reply's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from placet.v1 import event_pb2, outcome_pb2, usage_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """`event`: the message; `cursor` of it is where `run_stream(action_id, after=…)` goes on."""

    event: event_pb2.ActionEvent = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(RunEvent):
    """Some of what the model is saying."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(RunEvent):
    """Some of what the model is saying to itself."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(RunEvent):
    """The model is asked. `purpose`: "answer", "repair" or "compact"."""

    turn: int
    model: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(RunEvent):
    """The model is asked again for a turn; what it has said in it before is void. `number`: which try it is."""

    turn: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAnswered(RunEvent):
    """The answer is there, whole. `usage`: what this turn took; None if the provider did not say."""

    turn: int
    usage: usage_pb2.Usage | None
    finish_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(RunEvent):
    """There is no answer. `category`: "timeout", "rate_limited", …"""

    turn: int
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(RunEvent):
    """A call of the model is an action now. `waiting`: people have to say yes first."""

    turn: int
    call: int
    tool: str
    action_id: str
    waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(RunEvent):
    """A call has ended. `action_id` is empty if it was refused before it was one."""

    turn: int
    call: int
    tool: str
    action_id: str
    outcome: outcome_pb2.Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(RunEvent):
    """Nobody runs it until somebody has decided, a step has ended, or its turn in the session has come:
    `client.get(action_id).outcome.waits` has what people are asked.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(RunEvent):
    """It goes on after a wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(RunEvent):
    """The last one, unless an operator has it tried again."""

    outcome: outcome_pb2.Outcome


def run_event(event: event_pb2.ActionEvent) -> RunEvent:
    """The event, as what it says."""
    make = _MADE.get(event.WhichOneof("event") or "")
    return RunEvent(event=event) if make is None else make(event)


def _delta(event: event_pb2.ActionEvent) -> RunEvent:
    delta = event.delta
    if delta.WhichOneof("data") == "reasoning":
        return ReasoningDelta(event=event, turn=delta.turn, text=delta.reasoning)
    return TextDelta(event=event, turn=delta.turn, text=delta.text)


def _requested(event: event_pb2.ActionEvent) -> RunEvent:
    asked = event.turn_requested
    if asked.number > 1:
        return Restarted(event=event, turn=asked.turn, number=asked.number)
    return TurnStarted(event=event, turn=asked.turn, model=asked.model, purpose=asked.purpose)


def _answered(event: event_pb2.ActionEvent) -> RunEvent:
    answered = event.turn_answered
    usage = answered.usage if answered.HasField("usage") else None
    return TurnAnswered(event=event, turn=answered.turn, usage=usage, finish_reason=answered.finish_reason)


def _failed(event: event_pb2.ActionEvent) -> RunEvent:
    return TurnFailed(event=event, turn=event.turn_failed.turn, category=event.turn_failed.category)


def _started(event: event_pb2.ActionEvent) -> RunEvent:
    called = event.tool_started
    return ToolStarted(
        event=event,
        turn=called.turn,
        call=called.call,
        tool=called.tool,
        action_id=called.action_id,
        waiting=called.waiting,
    )


def _finished(event: event_pb2.ActionEvent) -> RunEvent:
    called = event.tool_finished
    return ToolFinished(
        event=event,
        turn=called.turn,
        call=called.call,
        tool=called.tool,
        action_id=called.outcome.action_id,
        outcome=called.outcome,
    )


_MADE: dict[str, Callable[[event_pb2.ActionEvent], RunEvent]] = {
    "delta": _delta,
    "turn_requested": _requested,
    "turn_answered": _answered,
    "turn_failed": _failed,
    "tool_started": _started,
    "tool_finished": _finished,
    "waiting": lambda event: Waiting(event=event),
    "parked": lambda event: Waiting(event=event),
    "resumed": lambda event: Resumed(event=event),
    "settled": lambda event: Ended(event=event, outcome=event.settled.outcome),
}
