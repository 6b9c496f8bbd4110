"""A stream has every event in order, ends with the settlement, and its status says the same."""

from __future__ import annotations

import json
import uuid
from typing import Any

from placet.v1 import event_pb2, outcome_pb2
from tests.conformance.program import Program


def invoke(capability: str, value: object) -> dict[str, Any]:
    options = {"idempotency_key": str(uuid.uuid4())}
    return {"invocation": {"capability": capability, "input_json": json.dumps(value), "options": options}}


def numbers(events: list[event_pb2.ActionEvent]) -> list[int]:
    return [
        event.chunk.number if event.HasField("chunk") else event.progress.number
        for event in events
        if event.HasField("chunk") or event.HasField("progress")
    ]


def test_every_chunk_arrives_in_order_before_the_settlement(program: Program) -> None:
    answer = program.call("ExecuteStream", invoke("desk.count", {"to": 50}))
    assert "OK" == answer.code
    events = answer.events
    chunks = [json.loads(event.chunk.json) for event in events if event.HasField("chunk")]
    assert [{"n": n, "text": "naïve √ 🚀"} for n in range(1, 51)] == chunks
    assert list(range(1, 101)) == numbers(events)
    assert "50" == events[-1].settled.output_json
    assert {events[0].action_id} == {event.action_id for event in events}
    assert events[0].action_id == answer.headers["placet-action-id"]


def test_a_stream_that_fails_ends_with_the_settlement_and_then_the_status(program: Program) -> None:
    answer = program.call("ExecuteStream", invoke("desk.count_and_fail", {}))
    assert ("ABORTED", "HANDLER_FAILED") == (answer.code, answer.reason)
    events = answer.events
    assert ["half"] == [event.chunk.text for event in events if event.HasField("chunk")]
    assert "settled" == events[-1].WhichOneof("event")
    assert "out_of_paper" == events[-1].settled.outcome.failure_code == answer.outcome.failure_code
    assert outcome_pb2.OUTCOME_KIND_FAILED == answer.outcome.kind


def test_a_watch_after_the_end_tells_the_same_and_resumes_at_a_cursor(program: Program) -> None:
    told = program.call("ExecuteStream", invoke("desk.count", {"to": 3})).events
    action_id = told[0].action_id
    watched = program.call("WatchAction", {"action_id": action_id})
    assert "OK" == watched.code
    assert [e.WhichOneof("event") for e in told] == [e.WhichOneof("event") for e in watched.events]
    middle = watched.events[2].cursor
    rest = program.call("WatchAction", {"action_id": action_id, "after_cursor": middle})
    assert [e.cursor for e in watched.events[3:]] == [e.cursor for e in rest.events]
