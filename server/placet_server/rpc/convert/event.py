"""Events and idle checkpoints → the one message that all streams send."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from placet.v1 import event_pb2, outcome_pb2, runtime_service_pb2
from placet_server.core.publication.called import Called
from placet_server.model.decision import ApprovalState, VoteVerdict
from placet_server.model.durability import DurabilityClass
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.event import LANE, Event, EventType, IdleCheckpoint
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind, RetryAdvice
from placet_server.model.query import FeedFilter
from placet_server.model.wait import Wait, WaitKind
from placet_server.rpc.convert.called import add_calls
from placet_server.rpc.convert.decision import APPROVAL_STATE, VOTE_VERDICT
from placet_server.rpc.convert.enumeration import DURABILITY, EFFECT_STATE
from placet_server.rpc.convert.outcome import fill_outcome, outcome_message, wait_message
from placet_server.rpc.convert.time import set_timestamp

TYPE_PREFIX = "placet.action."


def event_message(event: Event | IdleCheckpoint) -> event_pb2.ActionEvent:
    if isinstance(event, IdleCheckpoint):
        return event_pb2.ActionEvent(cursor=event.cursor, action_id=event.action_id)
    message = event_pb2.ActionEvent(
        cursor=event.cursor,
        action_id=event.action_id,
        sequence=event.sequence,
        replayed=event.replayed,
        type=TYPE_PREFIX + event.type.value,
    )
    set_timestamp(message.create_time, event.create_time_us)
    _FILL[event.type](message, event)
    return message


def feed_filter_of(wanted: runtime_service_pb2.EventFilter) -> FeedFilter:
    """Raises MalformedRequest for what is in no feed."""
    types = tuple(name.removeprefix(TYPE_PREFIX) for name in wanted.types)
    if not LANE.isdisjoint(types):
        said = ", ".join(sorted(LANE))
        violation = FieldViolation(field="filter.types", rule="in_feed", description=f"in no feed are {said}")
        raise MalformedRequest(violations=(violation,))
    return FeedFilter(capabilities=tuple(wanted.capabilities), types=types, labels=dict(wanted.labels))


def _admitted(message: event_pb2.ActionEvent, event: Event) -> None:
    body = event.body
    message.admitted.capability = body["capability"]
    message.admitted.version = body["version"]
    message.admitted.durability = DURABILITY[DurabilityClass[body["durability"]]]
    if "queue" in body:
        message.admitted.queue = body["queue"]
        set_timestamp(message.admitted.ready_time, body["ready_time_us"])


def _attempt_started(message: event_pb2.ActionEvent, event: Event) -> None:
    message.attempt_started.attempt = event.body["attempt"]


def _parked(message: event_pb2.ActionEvent, event: Event) -> None:
    message.parked.attempt = event.body["attempt"]
    message.parked.steps = event.body["steps"]


def _resumed(message: event_pb2.ActionEvent, event: Event) -> None:
    message.resumed.attempt = event.body["attempt"]


def _run_opened(message: event_pb2.ActionEvent, event: Event) -> None:
    opened, body = message.run_opened, event.body
    opened.model = body["model"]
    opened.tools = body["tools"]
    _remembered(opened, body)


def _turn_requested(message: event_pb2.ActionEvent, event: Event) -> None:
    requested, body = message.turn_requested, event.body
    requested.turn = body["turn"]
    requested.number = body["number"]
    requested.model = body["model"]
    requested.purpose = body["purpose"]
    _remembered(requested, body)


def _turn_answered(message: event_pb2.ActionEvent, event: Event) -> None:
    answered, body = message.turn_answered, event.body
    answered.turn = body["turn"]
    answered.finish_reason = body["finish"]
    add_calls(answered.calls, map(_call, body["calls"]))
    if (usage := body["usage"]) is not None:
        answered.usage.input_tokens = usage["input_tokens"]
        answered.usage.output_tokens = usage["output_tokens"]
        answered.usage.cached_input_tokens = usage["cached_tokens"]
        answered.usage.cost_micros = body["cost_micros"] or 0
        answered.usage.cost_known = body["cost_micros"] is not None
        answered.usage.requests = 1
    _remembered(answered, body)


def _call(stored: dict[str, Any]) -> Called:
    """Of whatever release."""
    return Called(
        stored["call"],
        stored["tool"],
        stored["action_id"],
        stored.get("problem", ""),
        stored.get("reason", ""),
    )


def _turn_failed(message: event_pb2.ActionEvent, event: Event) -> None:
    failed, body = message.turn_failed, event.body
    failed.turn = body["turn"]
    failed.number = body["number"]
    failed.category = body["category"]
    if (delay := body["retry_delay_seconds"]) is not None:
        failed.retry_delay.FromTimedelta(timedelta(seconds=delay))
    _remembered(failed, body)


def _compacted(message: event_pb2.ActionEvent, event: Event) -> None:
    message.compacted.turns = event.body["turns"]
    _remembered(message.compacted, event.body)


def _remembered(
    message: event_pb2.RunOpened
    | event_pb2.TurnRequested
    | event_pb2.TurnAnswered
    | event_pb2.TurnFailed
    | event_pb2.RunCompacted,
    body: dict[str, Any],
) -> None:
    message.attempt = body["attempt"]
    message.digest = body["digest"]


def _requeued(message: event_pb2.ActionEvent, event: Event) -> None:
    message.requeued.attempt = event.body["attempt"]
    message.requeued.cause = event.body.get("cause") or ""
    ready_time_us = event.body.get("ready_time_us")
    if ready_time_us is not None:
        set_timestamp(message.requeued.ready_time, ready_time_us)
    _resolve(message.requeued.resolution, event)


def _effect_started(message: event_pb2.ActionEvent, event: Event) -> None:
    message.effect_started.attempt = event.body["attempt"]


def _effect_checkpointed(message: event_pb2.ActionEvent, event: Event) -> None:
    message.effect_checkpointed.provider_operation = event.body["provider_operation"]


def _cancel_requested(message: event_pb2.ActionEvent, event: Event) -> None:
    message.cancel_requested.requester = event.body.get("requester") or ""
    message.cancel_requested.reason = event.body.get("reason") or ""


def _ambiguous(message: event_pb2.ActionEvent, event: Event) -> None:
    message.ambiguous.outcome.CopyFrom(_outcome(event))


def _settled(message: event_pb2.ActionEvent, event: Event) -> None:
    message.settled.outcome.CopyFrom(_outcome(event))
    message.settled.output_json = event.body.get("output_json") or ""
    _resolve(message.settled.resolution, event)


def _resolve(message: event_pb2.Resolution, event: Event) -> None:
    if (known := event.body.get("resolution")) is not None:
        message.verdict = EFFECT_STATE[EffectState(known["verdict"])]
        message.reason = known["reason"]
        message.evidence = known["evidence"]
        message.requester = known["requester"]


def _given_up(message: event_pb2.ActionEvent, event: Event) -> None:
    message.reconcile_given_up.asked = event.body["asked"]
    message.reconcile_given_up.finding = event.body["finding"]


def _waiting(message: event_pb2.ActionEvent, event: Event) -> None:
    waiting, body = message.waiting, event.body
    wait = Wait(
        kind=WaitKind(body["kind"]),
        approval_id=body["approval_id"],
        action_id=event.action_id,
        title=body["title"],
        expire_time_us=body["expire_time_us"],
    )
    waiting.wait.CopyFrom(wait_message(wait))
    waiting.predecessor_id = body.get("predecessor_id") or ""


def _approval_decided(message: event_pb2.ActionEvent, event: Event) -> None:
    decided, body = message.approval_decided, event.body
    decided.approval_id = body["approval_id"]
    decided.decision_id = body["decision_id"]
    decided.voter = body["voter"]
    decided.verdict = VOTE_VERDICT[VoteVerdict(body["verdict"])]
    decided.reason = body["reason"]
    decided.completes = body["completes"]
    decided.taken_back = body["taken_back"]


def _approval_ended(message: event_pb2.ActionEvent, event: Event) -> None:
    message.approval_ended.approval_id = event.body["approval_id"]
    message.approval_ended.state = APPROVAL_STATE[ApprovalState(event.body["state"])]


def _redriven(message: event_pb2.ActionEvent, event: Event) -> None:
    redriven, body = message.redriven, event.body
    redriven.generation = body["generation"]
    redriven.attempts = body["attempts"]
    redriven.requester = body["requester"]
    redriven.reason = body["reason"]


def _progress(message: event_pb2.ActionEvent, event: Event) -> None:
    message.progress.message = event.body.get("message") or ""
    message.progress.number = event.number
    fraction = event.body.get("fraction")
    if fraction is not None:
        message.progress.fraction = fraction


def _chunk(message: event_pb2.ActionEvent, event: Event) -> None:
    chunk, body = message.chunk, event.body
    chunk.number = event.number
    chunk.attempt = event.attempt
    if "text" in body:
        chunk.text = body["text"]
    elif "json" in body:
        chunk.json = body["json"]
    else:
        chunk.binary = base64.b64decode(body["base64"])


def _delta(message: event_pb2.ActionEvent, event: Event) -> None:
    delta, body = message.delta, event.body
    delta.turn = body["turn"]
    delta.request = body["request"]
    delta.number = event.number
    delta.attempt = event.attempt
    if "text" in body:
        delta.text = body["text"]
    else:
        delta.reasoning = body["reasoning"]


def _tool_started(message: event_pb2.ActionEvent, event: Event) -> None:
    started, body = message.tool_started, event.body
    started.action_id = body["action_id"]
    started.waiting = body["waiting"]
    _called(started, event)


def _tool_finished(message: event_pb2.ActionEvent, event: Event) -> None:
    finished = message.tool_finished
    fill_outcome(finished.outcome, _outcome_of(event.body, event.body["action_id"]))
    _called(finished, event)


def _called(message: event_pb2.ToolStarted | event_pb2.ToolFinished, event: Event) -> None:
    message.turn = event.body["turn"]
    message.call = event.body["call"]
    message.tool = event.body["tool"]
    message.number = event.number
    message.attempt = event.attempt


_FILL: dict[EventType, Callable[[event_pb2.ActionEvent, Event], None]] = {
    EventType.ADMITTED: _admitted,
    EventType.ATTEMPT_STARTED: _attempt_started,
    EventType.PARKED: _parked,
    EventType.RESUMED: _resumed,
    EventType.RUN_OPENED: _run_opened,
    EventType.TURN_REQUESTED: _turn_requested,
    EventType.TURN_ANSWERED: _turn_answered,
    EventType.TURN_FAILED: _turn_failed,
    EventType.COMPACTED: _compacted,
    EventType.REQUEUED: _requeued,
    EventType.EFFECT_STARTED: _effect_started,
    EventType.EFFECT_CHECKPOINTED: _effect_checkpointed,
    EventType.CANCEL_REQUESTED: _cancel_requested,
    EventType.AMBIGUOUS: _ambiguous,
    EventType.SETTLED: _settled,
    EventType.REDRIVEN: _redriven,
    EventType.RECONCILE_GIVEN_UP: _given_up,
    EventType.WAITING: _waiting,
    EventType.APPROVAL_DECIDED: _approval_decided,
    EventType.APPROVAL_ENDED: _approval_ended,
    EventType.CHUNK: _chunk,
    EventType.PROGRESS: _progress,
    EventType.DELTA: _delta,
    EventType.TOOL_STARTED: _tool_started,
    EventType.TOOL_FINISHED: _tool_finished,
}


def _outcome(event: Event) -> outcome_pb2.Outcome:
    return outcome_message(_outcome_of(event.body, event.action_id))


def _outcome_of(body: dict[str, Any], action_id: str) -> Outcome:
    effect = body.get("effect")
    return Outcome(
        kind=OutcomeKind(body["kind"]),
        reason=body.get("reason"),
        action_id=action_id,
        attempt=body.get("attempt") or 0,
        retry_advice=RetryAdvice(body["retry_advice"]),
        retry_delay_seconds=body.get("retry_delay_seconds"),
        failure_code=body.get("failure_code") or "",
        message=body.get("message") or "",
        effect=None if effect is None else EffectState(effect),
    )
