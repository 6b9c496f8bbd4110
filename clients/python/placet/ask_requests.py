"""Asking agents: requests from plain arguments, replies from answers, and the steps between. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from placet.agent import INLINE_AGENT, Budget, InlineAgent
from placet.agent_requests import budget_message, inline_message
from placet.context import Json
from placet.errors import TransportError
from placet.requests import CallOptions, PreparedCall, input_text, prepare_call
from placet.result import Result
from placet.retry import Deadline, RetryPolicy
from placet.steps import Steps, invoke, is_keyless, look_up
from placet.v1 import action_pb2, agent_pb2, ask_pb2, runtime_service_pb2, usage_pb2

ASK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A part of a message that is JSON: `value` is JSON-able, a pydantic model, or JSON text as bytes."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryPart:
    """A part of a message that is bytes, such as a picture. `name`: of a file."""

    media_type: str
    data: bytes
    name: str = ""


Part: TypeAlias = str | JsonPart | BinaryPart
"""Text, unless it says otherwise."""
Message: TypeAlias = Part | Sequence[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an agent has answered. `parts`: its last message, or one JsonPart if it has a schema for what it answers;
    `text`: the texts among them. `output`: the same as the action has it. Of a run that waits for people, which only
    `on_wait="return"` gives, there is none of them. `usage`: what the run has spent so far.
    """

    text: str
    output: Json
    parts: tuple[Part, ...]
    usage: usage_pb2.Usage
    action_id: str
    attached: bool
    action: action_pb2.Action


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAsk(PreparedCall):
    """Can be sent as often as needed; its invocation is what the server makes of it."""

    parts: tuple[ask_pb2.MessagePart, ...]
    arguments: Mapping[str, str]
    budget: agent_pb2.Budget | None
    inline_agent: agent_pb2.InlineAgent | None

    def ask_request(self) -> runtime_service_pb2.AskRequest:
        return runtime_service_pb2.AskRequest(
            agent=self.capability,
            version=self.invocation.version,
            parts=self.parts,
            arguments=self.arguments,
            options=self.invocation.options,
            budget=self.budget,
            inline_agent=self.inline_agent,
        )


def prepare_ask(
    agent: str | InlineAgent,
    message: Message,
    arguments: Mapping[str, str] | None,
    budget: Budget | None,
    options: CallOptions,
) -> PreparedAsk:
    """Raises TypeError or ValueError as `prepare_call` does, and for a message without parts."""
    bounds = None if budget is None else budget_message(budget, "budget")
    parts = [message] if isinstance(message, str | JsonPart | BinaryPart) else list(message)
    if not parts:
        raise ValueError("a message has at least one part")
    value: dict[str, Any] = {"parts": [_document(part) for part in parts]}
    if arguments:
        value["arguments"] = dict(arguments)
    if bounds is not None:
        value["budget"] = _budget_document(bounds)
    inline = None
    if isinstance(agent, InlineAgent):
        inline = inline_message(agent)
        value["agent"] = _inline_document(inline)
    call = prepare_call(agent if isinstance(agent, str) else INLINE_AGENT, value, options)
    return PreparedAsk(
        invocation=call.invocation,
        key_is_automatic=call.key_is_automatic,
        message_id=call.message_id,
        message_time=call.message_time,
        parts=tuple(_part_message(part) for part in parts),
        arguments=dict(arguments or {}),
        budget=bounds,
        inline_agent=inline,
    )


def ask_agent(
    prepared: PreparedAsk, keyless: set[str], deadline: Deadline, policy: RetryPolicy
) -> Steps[Reply]:
    """Ask until there is an answer, or no time for another try."""

    def request(sent: PreparedCall) -> runtime_service_pb2.AskRequest:
        return cast("PreparedAsk", sent).ask_request()

    try:
        response = yield from invoke("Ask", request, prepared, keyless, deadline, policy)
    except TransportError as lost:
        if is_keyless(prepared, keyless):
            raise
        return reply_of((yield from look_up(prepared, lost, deadline)))
    parts = tuple(_part(part) for part in response.parts)
    return _reply(Result.of(response.action, attached=response.attached), parts)


def reply_of(result: Result) -> Reply:
    """Of what the action has: an output that has nothing but texts as its parts is a message."""
    if result.output is None:
        return _reply(result, ())
    texts = _texts(result.output)
    return _reply(result, (JsonPart(result.output),) if texts is None else tuple(texts))


def turns_request(
    action_id: str, page_size: int, *, with_messages: bool
) -> runtime_service_pb2.ListTurnsRequest:
    return runtime_service_pb2.ListTurnsRequest(
        action_id=action_id, page_size=page_size, with_messages=with_messages
    )


def _reply(result: Result, parts: tuple[Part, ...]) -> Reply:
    return Reply(
        text="\n\n".join(part for part in parts if isinstance(part, str)),
        output=result.output,
        parts=parts,
        usage=result.action.usage,
        action_id=result.action_id,
        attached=result.attached,
        action=result.action,
    )


def _texts(output: Json) -> list[str] | None:
    parts = output.get("parts") if isinstance(output, dict) and len(output) == 1 else None
    if not isinstance(parts, list) or not all(isinstance(p, dict) and p.keys() == {"text"} for p in parts):
        return None
    return [str(cast("dict[str, Json]", part)["text"]) for part in parts]


def _budget_document(budget: agent_pb2.Budget) -> dict[str, int]:
    """As the input of a run has it."""
    document = {
        "turns": budget.turns,
        "calls": budget.calls,
        "equal_calls": budget.equal_calls,
        "tokens": budget.tokens,
        "cost_micros": budget.cost_micros,
        "active_ms": round(budget.active_time.ToTimedelta().total_seconds() * 1000),
    }
    return {name: bound for name, bound in document.items() if bound}


def _inline_document(agent: agent_pb2.InlineAgent) -> dict[str, Any]:
    """As the input of a run has it."""
    document: dict[str, Any] = {
        "model": agent.model,
        "tools": list(agent.tools),
        "delegates": list(agent.delegates),
    }
    more = {"instructions": agent.instructions, "max_tokens": agent.max_tokens}
    return document | {name: said for name, said in more.items() if said}


def _document(part: Part) -> dict[str, Any]:
    match part:
        case str():
            return {"text": part}
        case JsonPart():
            return {"json": json.loads(input_text(part.value))}
        case BinaryPart():
            data = {"media_type": part.media_type, "data": b64encode(part.data).decode()}
            return {"binary": {**data, "name": part.name} if part.name else data}
        case _:
            raise TypeError(f"a part is a str, a JsonPart or a BinaryPart, not {type(part).__name__}")


def _part_message(part: Part) -> ask_pb2.MessagePart:
    match part:
        case str():
            return ask_pb2.MessagePart(text=part)
        case JsonPart():
            return ask_pb2.MessagePart(json=input_text(part.value))
        case BinaryPart():
            binary = ask_pb2.BinaryPart(media_type=part.media_type, data=part.data, name=part.name)
            return ask_pb2.MessagePart(binary=binary)


def _part(message: ask_pb2.MessagePart) -> Part:
    match message.WhichOneof("part"):
        case "json":
            return JsonPart(json.loads(message.json))
        case "binary":
            binary = message.binary
            return BinaryPart(media_type=binary.media_type, data=binary.data, name=binary.name)
        case _:
            return message.text
