"""Calls of an answer → messages, the same in events, turns and what was said in a session."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from placet.v1 import event_pb2
from placet_server.core.publication.called import Called
from placet_server.model.entry import CallProblem
from placet_server.rpc.convert.enumeration import ERROR_REASON, numbers

# What a later release may have written is told as nothing.
_PROBLEM = {
    member.value: number
    for member, number in numbers(event_pb2.CallProblem, "CALL_PROBLEM_", CallProblem).items()
}


def add_calls(messages: RepeatedCompositeFieldContainer[event_pb2.TurnCall], calls: Iterable[Called]) -> None:
    for call in calls:
        messages.add(
            call=call.call,
            tool=call.tool,
            action_id=call.action_id,
            problem=_PROBLEM.get(call.problem, 0),
            reason=ERROR_REASON.get(call.reason, 0),
        )
