"""AskRequest → the invocation that it is, answers and turns → messages."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from placet.v1 import action_pb2, agent_pb2, ask_pb2, usage_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.core.publication.entries import FINISH_LENGTH_MAX
from placet_server.core.publication.turn import Turn
from placet_server.model.action import Invocation
from placet_server.model.ask import Part, budget_value
from placet_server.model.json_text import canonicalize
from placet_server.model.session import SessionPlace
from placet_server.rpc.convert.agent import budget_message, budget_of
from placet_server.rpc.convert.called import add_calls
from placet_server.rpc.convert.invocation import invocation_of
from placet_server.rpc.convert.time import duration, set_timestamp
from placet_server.store.run import StoredRun

JSON_BYTES_MAX = 3 * 2**20
MESSAGES_BYTES_MAX = 3 * 2**20


def invocation_of_ask(request: pb.AskRequest, *, within: str = "") -> Invocation:
    """Raises MalformedJson, JsonNotInteroperable for a part that is no JSON, by its field. `within`: of what."""
    parts = [_part_text(part, f"{within}parts[{index}].json") for index, part in enumerate(request.parts)]
    text = f'{{"parts":[{",".join(parts)}]'
    if request.arguments:
        text += f',"arguments":{json.dumps(dict(request.arguments), ensure_ascii=False)}'
    if bounds := budget_value(budget_of(request.budget)):
        text += f',"budget":{json.dumps(bounds)}'
    if request.HasField("inline_agent"):
        text += f',"agent":{json.dumps(_inline_value(request.inline_agent), ensure_ascii=False)}'
    return invocation_of(
        action_pb2.Invocation(
            capability=request.agent,
            version=request.version,
            input_json=text + "}",
            options=request.options,
        )
    )


def _inline_value(agent: agent_pb2.InlineAgent) -> dict[str, Any]:
    """As the input has it: what is not said is left out, but for what it may call."""
    value: dict[str, Any] = {
        "model": agent.model,
        "tools": list(agent.tools),
        "delegates": list(agent.delegates),
    }
    if agent.instructions:
        value["instructions"] = agent.instructions
    if agent.max_tokens:
        value["max_tokens"] = agent.max_tokens
    return value


def part_messages(parts: Iterable[Part]) -> list[ask_pb2.MessagePart]:
    return [_part_message(part) for part in parts]


def fill_run(
    message: action_pb2.Action, run: StoredRun | None, place: SessionPlace | None = None
) -> action_pb2.Action:
    """What it has spent, and may, and its session; nothing if it is no run. Changes the message."""
    if place is not None:
        message.session_id = place.session_id
    if run is None:
        return message
    counters = run.counters
    message.usage.CopyFrom(
        usage_pb2.Usage(
            turns=counters.turns,
            requests=counters.requests,
            calls=counters.calls,
            input_tokens=counters.input_tokens,
            output_tokens=counters.output_tokens,
            cached_input_tokens=counters.cached_tokens,
            cost_micros=counters.cost_micros,
            cost_known=counters.unpriced == 0,
            active_time=duration(counters.active_ms / 1000),
            reserved_tokens=counters.reserved_tokens,
        )
    )
    message.budget.CopyFrom(budget_message(run.budget))
    return message


def turn_message(turn: Turn, *, with_messages: bool) -> pb.Turn:
    message = pb.Turn(
        turn=turn.turn,
        requests=turn.requests,
        purpose=turn.purpose,
        finish_reason=turn.finish[:FINISH_LENGTH_MAX],
        failure=turn.failure,
        problem=turn.problem,
    )
    _set_time(message.request_time, turn.request_time_us)
    _set_time(message.answer_time, turn.answer_time_us)
    add_calls(message.calls, turn.calls)
    if (usage := turn.usage) is not None:
        message.usage.requests = 1
        message.usage.input_tokens = usage.input_tokens
        message.usage.output_tokens = usage.output_tokens
        message.usage.cached_input_tokens = usage.cached_tokens
        message.usage.cost_micros = turn.cost_micros or 0
        message.usage.cost_known = turn.cost_micros is not None
    if with_messages and turn.messages:
        text = f"[{','.join(turn.messages)}]"
        if len(text.encode()) <= MESSAGES_BYTES_MAX:
            message.messages_json = text
    return message


def _part_text(part: ask_pb2.MessagePart, field: str) -> str:
    """As JSON."""
    match part.WhichOneof("part"):
        case "json":
            return f'{{"json":{canonicalize(part.json, bytes_max=JSON_BYTES_MAX, field=field).text}}}'
        case "binary":
            binary = {"media_type": part.binary.media_type, "data": b64encode(part.binary.data).decode()}
            named = {**binary, "name": part.binary.name} if part.binary.name else binary
            return json.dumps({"binary": named}, ensure_ascii=False)
        case _:
            return json.dumps({"text": part.text}, ensure_ascii=False)


def _part_message(part: Part) -> ask_pb2.MessagePart:
    if part.text is not None:
        return ask_pb2.MessagePart(text=part.text)
    if part.json is not None:
        return ask_pb2.MessagePart(json=part.json)
    assert part.binary is not None
    return ask_pb2.MessagePart(
        binary=ask_pb2.BinaryPart(
            media_type=part.binary.media_type, data=part.binary.data, name=part.binary.name
        )
    )


def _set_time(message: Timestamp, time_us: int | None) -> None:
    if time_us is not None:
        set_timestamp(message, time_us)
