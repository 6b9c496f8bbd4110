"""The local model in the library's form, under a name that says what it is."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from placet_server.harness.local_model import Line, plan_turn
from placet_server.harness.provider.catalogue import LOCAL_MODEL

_WORDS = re.compile(r"\s*\S+")


def local_model() -> FunctionModel:
    return FunctionModel(stream_function=_stream, model_name=LOCAL_MODEL)


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """By words, as a model would say it."""
    number = 1 + sum(isinstance(message, ModelResponse) for message in messages)
    turn = plan_turn(list(_lines(messages)), frozenset(tool.name for tool in info.function_tools))
    for word in _WORDS.findall(turn.text):
        yield word
    for index, call in enumerate(turn.calls, start=1):
        id = f"call-{number}-{index}"
        yield {index: DeltaToolCall(name=call.tool, json_args=json.dumps(call.input), tool_call_id=id)}


def _lines(messages: Sequence[ModelMessage]) -> Iterator[Line]:
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart():
                    yield Line(role="user", text=_text(part))
                case ToolCallPart():
                    yield Line(
                        role="call", text=part.args_as_json_str(), tool=part.tool_name, id=part.tool_call_id
                    )
                case ToolReturnPart():
                    yield Line(
                        role="result",
                        text=part.model_response_str(wrap_if_error=False),
                        id=part.tool_call_id,
                        is_success=part.outcome == "success",
                    )
                case _:
                    pass


def _text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(piece for piece in part.content if isinstance(piece, str))
