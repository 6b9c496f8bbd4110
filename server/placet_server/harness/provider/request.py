"""One request with the library, from text to text: all of it as a stream, so that what a model says is told while it
says it, and a stream that ends early is seen for what it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import orjson
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP
from pydantic_ai.settings import ModelSettings as LibrarySettings
from pydantic_ai.tools import ToolDefinition

from placet_server.harness.provider import usage_told, wire
from placet_server.harness.provider.answer import (
    FINAL_OUTPUT,
    Answer,
    BeforeSent,
    Delta,
    OnDelta,
    Pins,
    TurnFailure,
    at_once,
)
from placet_server.harness.provider.catalogue import Kind
from placet_server.harness.provider.exchange import Exchange, exchange
from placet_server.harness.provider.failure import failure_of
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import TurnProblem
from placet_server.model.usage import Price

CLOSE_SECONDS = 1.0
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
# More is no answer that anybody meant; the work for each part of a stream grows with their number.
PARTS_MAX = 1024
CALLS_MAX = 256
# Not by a client of HTTP of ours, which would wait itself.
_SENT_OTHERWISE = (Kind.BEDROCK, Kind.LOCAL)
_THINKING_IN_TOKENS = (Kind.ANTHROPIC, Kind.BEDROCK)
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


class _Outside(Exception):
    """What the listener raised, which is nobody's failure but its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def ask(
    model: Model,
    kind: Kind,
    texts: Sequence[str],
    pins: Pins,
    settings: ModelSettings,
    *,
    on_delta: OnDelta,
    timeout_seconds: float,
    price: Price | None,
    scrub: Callable[[str], str],
    is_long: bool,
    before_sent: BeforeSent = at_once,
) -> Answer:
    """Raises TurnFailure, and what `on_delta` and `before_sent` raise."""
    if settings.reasoning_effort and settings.reasoning_effort not in EFFORTS:
        raise TurnFailure(TurnProblem.INVALID, detail=f"reasoning_effort is one of {', '.join(EFFORTS)}")
    try:
        messages = wire.load(texts)
    except Exception as error:
        # Without its words, which may be a prompt's.
        detail = f"reading what is to be said raised {type(error).__name__}"
        raise TurnFailure(TurnProblem.INVALID, detail=detail) from None
    with exchange(settings.max_tokens, before_sent) as http:
        try:
            if kind in _SENT_OTHERWISE:
                await http.let_go()
            response = await _in_time(
                http, lambda: _response(model, kind, messages, pins, settings, on_delta, timeout_seconds)
            )
        except _Outside as outside:
            raise outside.error from None
        except TurnFailure:
            raise
        except Exception as error:
            http.check()
            is_sent = http.is_begun or kind is Kind.LOCAL
            # Without its cause, which may hold the request with its headers.
            raise failure_of(error, scrub, is_long=is_long, is_sent=is_sent) from None
    http.check()
    return _whole(response, kind, price)


async def _in_time(http: Exchange, asked: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
    """Asked anew if all its time was over before it might be sent: that says nothing of the provider."""
    try:
        return await asked()
    except Exception:
        if not http.is_held:
            raise
    await http.let_go()
    return await asked()


async def _response(
    model: Model,
    kind: Kind,
    messages: Sequence[ModelMessage],
    pins: Pins,
    settings: ModelSettings,
    on_delta: OnDelta,
    timeout_seconds: float,
) -> ModelResponse:
    manager = model_request_stream(
        model,
        messages,
        model_settings=_settings(model, kind, settings, pins, timeout_seconds),
        model_request_parameters=_parameters(pins),
        instrument=False,
    )
    stream = await manager.__aenter__()
    usage_told.take_as_told(stream)
    parts = calls = 0
    try:
        async for event in stream:
            if isinstance(event, PartStartEvent):
                parts, calls = parts + 1, calls + isinstance(event.part, ToolCallPart)
                if parts > PARTS_MAX or calls > CALLS_MAX:
                    text = f"the answer has more than {CALLS_MAX} calls, or {PARTS_MAX} parts"
                    raise TurnFailure(TurnProblem.INVALID, charged=True, detail=text)
            delta = _delta(event)
            if delta is not None:
                try:
                    await on_delta(delta)
                except Exception as error:
                    raise _Outside(error) from None
        return stream.get()
    finally:
        # A server that does not let go must hold nobody up who is to stop, and what goes wrong now changes nothing.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await manager.__aexit__(None, None, None)


def _whole(response: ModelResponse, kind: Kind, price: Price | None) -> Answer:
    """Raises TurnFailure for what is not known to be whole: no call of it is ever made."""
    finish = wire.finish_of(response)
    is_taken = response.finish_reason == "content_filter"
    has_ended = bool(finish) or kind is Kind.LOCAL
    if not has_ended or not (response.parts or is_taken) or response.state in ("incomplete", "interrupted"):
        raise TurnFailure(
            TurnProblem.TRUNCATED, charged=True, detail="the stream ended before the answer did"
        )
    if response.finish_reason == "error" or response.state != "complete":
        # Failed, or paused for a tool of the provider's own, of which we ask for none.
        raise TurnFailure(TurnProblem.INVALID, charged=True, detail=f"the answer ended with {finish!r}")
    try:
        answer = wire.answer_of(response, price)
    except Exception:
        raise TurnFailure(
            TurnProblem.INVALID, charged=True, detail="the answer cannot be kept, or read back as it is"
        ) from None
    if is_taken and not answer.calls and not any(answer.said):
        raise TurnFailure(TurnProblem.REFUSED, charged=True, detail="the provider's filter took the answer")
    return answer


def _parameters(pins: Pins) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.alias,
            description=tool.description,
            parameters_json_schema=_schema(tool.input_schema),
            # What the contract says, and nothing that a provider would add to it.
            strict=False,
        )
        for tool in sorted(pins.tools, key=lambda tool: tool.alias)
    ]
    finals = []
    if pins.output_schema is not None:
        finals.append(
            ToolDefinition(
                name=FINAL_OUTPUT,
                description="Ends the work with this result.",
                parameters_json_schema=_schema(pins.output_schema),
                kind="output",
                strict=False,
            )
        )
    return ModelRequestParameters(
        function_tools=tools,
        output_tools=finals,
        output_mode="tool" if finals else "text",
        allow_text_output=not finals,
        instruction_parts=[InstructionPart(content=pins.instructions)] if pins.instructions else [],
    )


def _schema(text: str) -> dict[str, Any]:
    """Providers want an object with properties; what is more general is checked when the call is planned."""
    document = orjson.loads(text) if text else True
    if not isinstance(document, dict):
        return dict(_ANY_OBJECT)
    return document if document.get("type") == "object" else {**document, "type": "object"}


def _settings(
    model: Model, kind: Kind, settings: ModelSettings, pins: Pins, timeout_seconds: float
) -> LibrarySettings:
    made: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "request_timeout": timeout_seconds,
    }
    if settings.temperature is not None:
        made["temperature"] = settings.temperature
    if settings.top_p is not None:
        made["top_p"] = settings.top_p
    if effort := _effort(model, kind, settings):
        made["thinking"] = effort
    if settings.parallel_tool_calls is not None and (pins.tools or pins.output_schema is not None):
        made["parallel_tool_calls"] = settings.parallel_tool_calls
    if pins.calls_nothing and pins.tools:
        made["tool_choice"] = "none"
    return cast(LibrarySettings, made)


def _effort(model: Model, kind: Kind, settings: ModelSettings) -> str:
    """Thinking is a part of the answer. Where it is asked for by a number of tokens, the provider refuses a number that
    is not below `max_tokens`: the most that is, and half of it for the answer; nothing if that is too little to think.
    """
    wanted = settings.reasoning_effort
    adapts = ("anthropic_supports_adaptive_thinking", "bedrock_supports_adaptive_thinking")
    if not wanted or kind not in _THINKING_IN_TOKENS or any(model.profile.get(each) for each in adapts):
        return wanted
    lower = EFFORTS[: EFFORTS.index(wanted) + 1]
    fits = [
        effort
        for effort in lower
        if 2 * ANTHROPIC_THINKING_BUDGET_MAP[cast(Any, effort)] <= settings.max_tokens
    ]
    return fits[-1] if fits else ""


def _delta(event: object) -> Delta | None:
    match event:
        case (
            PartStartEvent(part=TextPart(content=str(text)))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=str(text)))
        ):
            return Delta("text", text)
        case PartStartEvent(part=ThinkingPart(content=str(text))):
            return Delta("reasoning", text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
            return Delta("reasoning", text)
        case _:
            return None
