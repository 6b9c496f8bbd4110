"""Servers that answer as providers of models do, byte for byte on their wires, from a script: for tests of agents.

    async with OpenAIServer([Say("I look.", call("orders-lookup", order="A-1001")), Fail(429), Say("Done.")]) as models:
        …  # base_url=models.base_url
        models.requests_of(2)

A script is a conversation: each `Say` answers one turn, whoever asks for it and however often. What stands before a
`Say` is what the first requests of its turn get instead; a request is known again by its bytes. Each turn is told by
how many answers the request already holds, so any number of conversations can be had at once.

As a real one, a server refuses a conversation in which a call has no result, or two, and a request without its key.
Nothing but the standard library is needed. To be killed, or to outlive what is killed, it runs as a process:

    python -m placet.testing.model_servers openai [PORT]

The first line of its input is the script (`model_script.written`), the first line of its output the port. GET /recorded
tells what came; the end of its input ends it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from placet.testing.model_connection import KEY, ModelServer, Request
from placet.testing.model_script import (
    Call,
    Drop,
    Fail,
    FailInStream,
    Say,
    Script,
    Stall,
    Step,
    Truncate,
    call,
    read,
)

__all__ = [
    "KEY",
    "AnthropicServer",
    "Call",
    "Drop",
    "Fail",
    "FailInStream",
    "ModelServer",
    "OpenAIServer",
    "Request",
    "Say",
    "Script",
    "Stall",
    "Step",
    "Truncate",
    "call",
]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# So many characters of a text are one event of a stream.
PIECE_LENGTH = 12


class OpenAIServer(ModelServer):
    """Chat completions, as OpenAI and those who are compatible with it have them."""

    wire = "openai"
    _prefix = "/v1"
    _path = "/chat/completions"

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        return not self._key or headers.get("authorization") == f"Bearer {self._key}"

    def _turn_of(self, body: Mapping[str, Any]) -> int:
        return _turn(body["messages"])

    def _problem(self, body: Mapping[str, Any]) -> str:
        wanted: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in wanted:
                    return (
                        f"{message['tool_call_id']} is no call of the message before, or has a result already"
                    )
                wanted.remove(message["tool_call_id"])
            elif wanted:
                return f"no result of {wanted[0]}"
            calls = message.get("tool_calls") or []
            if problem := _names_problem(each["function"]["name"] for each in calls):
                return problem
            wanted = wanted or [each["id"] for each in calls]
        return f"no result of {wanted[0]}" if wanted else ""

    def _error(self, status: int, message: str, code: str) -> Any:
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": code or None}}

    def _whole(self, said: Say, body: Mapping[str, Any], turn: int) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": each.tool, "arguments": each.arguments}}
                for id, each in _with_ids(said, turn)
            ]
        return {
            **_chat(body, turn, "chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish(said)}],
            "usage": self._usage(said),
        }

    def _events(self, said: Say, body: Mapping[str, Any], turn: int) -> Iterator[bytes]:
        def event(delta: Any, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _sse({**_chat(body, turn, "chat.completion.chunk"), "choices": [choice]})

        yield event({"role": "assistant", "content": ""})
        for piece in _pieces(said.reasoning):
            yield event({"reasoning_content": piece})
        for piece in _pieces(said.text):
            yield event({"content": piece})
        for index, (id, each) in enumerate(_with_ids(said, turn)):
            function = {"name": each.tool, "arguments": ""}
            yield event(
                {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
            )
            for piece in _pieces(each.arguments):
                yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield event({}, self._finish(said))
        if (body.get("stream_options") or {}).get("include_usage") and said.usage:
            yield _sse(
                {**_chat(body, turn, "chat.completion.chunk"), "choices": [], "usage": self._usage(said)}
            )
        yield b"data: [DONE]\n\n"

    def _stream_error(self, failure: FailInStream) -> bytes:
        return _sse({"error": {"message": failure.message, "type": failure.type, "code": failure.type}})

    def _finish(self, said: Say) -> str:
        return said.finish or ("tool_calls" if said.calls else "stop")

    def _usage(self, said: Say) -> Any:
        if said.usage is None:
            return None
        tokens_in, tokens_out = said.usage
        return {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": said.cached},
        }


class AnthropicServer(ModelServer):
    """Messages, as Anthropic has them."""

    wire = "anthropic"
    _path = "/v1/messages"

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        # Clients of different ages say it differently.
        said = {headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer ")}
        is_keyed = not self._key or self._key in said
        return is_keyed and "anthropic-version" in headers

    def _turn_of(self, body: Mapping[str, Any]) -> int:
        return _turn(body["messages"])

    def _problem(self, body: Mapping[str, Any]) -> str:
        wanted: list[str] = []
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            told = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(told) != sorted(wanted):
                return f"tool_use ids {wanted} have the tool_result blocks {told}"
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if problem := _names_problem(block["name"] for block in calls):
                return problem
            wanted = [block["id"] for block in calls]
        if (body.get("thinking") or {}).get("budget_tokens", 0) >= body["max_tokens"]:
            return "`max_tokens` must be greater than `thinking.budget_tokens`"
        return f"no tool_result of {wanted[0]}" if wanted else ""

    def _error(self, status: int, message: str, code: str) -> Any:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            403: "permission_error",
            404: "not_found_error",
            413: "request_too_large",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {
            "type": "error",
            "error": {"type": code or kinds.get(status, "api_error"), "message": message},
        }

    def _whole(self, said: Say, body: Mapping[str, Any], turn: int) -> Any:
        content: list[Any] = []
        if said.reasoning:
            content.append({"type": "thinking", "thinking": said.reasoning, "signature": said.signature})
        if said.text:
            content.append({"type": "text", "text": said.text})
        for id, each in _with_ids(said, turn):
            content.append(
                {"type": "tool_use", "id": id, "name": each.tool, "input": json.loads(each.arguments)}
            )
        tokens_in, tokens_out = said.usage or (0, 0)
        return {
            **self._message(body, turn),
            "content": content,
            "stop_reason": self._finish(said),
            "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out},
        }

    def _events(self, said: Say, body: Mapping[str, Any], turn: int) -> Iterator[bytes]:
        tokens_in, tokens_out = said.usage or (0, 0)
        begun = {**self._message(body, turn), "content": [], "stop_reason": None}
        usage = {
            "input_tokens": tokens_in - said.cached,
            "cache_read_input_tokens": said.cached,
            "output_tokens": min(tokens_out, 1),
        }
        yield _named("message_start", {"message": {**begun, "usage": usage}})
        yield _named("ping", {})
        for index, (block, deltas) in enumerate(self._blocks(said, turn)):
            yield _named("content_block_start", {"index": index, "content_block": block})
            for delta in deltas:
                yield _named("content_block_delta", {"index": index, "delta": delta})
            yield _named("content_block_stop", {"index": index})
        ended = {"stop_reason": self._finish(said), "stop_sequence": None}
        yield _named("message_delta", {"delta": ended, "usage": {"output_tokens": tokens_out}})
        yield _named("message_stop", {})

    def _blocks(self, said: Say, turn: int) -> Iterator[tuple[Any, list[Any]]]:
        if said.reasoning:
            deltas: list[Any] = [
                {"type": "thinking_delta", "thinking": piece} for piece in _pieces(said.reasoning)
            ]
            deltas.append({"type": "signature_delta", "signature": said.signature})
            yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
        if said.text:
            yield (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": piece} for piece in _pieces(said.text)],
            )
        for id, each in _with_ids(said, turn):
            pieces = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(each.arguments)
            ]
            yield {"type": "tool_use", "id": id, "name": each.tool, "input": {}}, pieces

    def _stream_error(self, failure: FailInStream) -> bytes:
        return _named("error", {"error": {"type": failure.type, "message": failure.message}})

    def _finish(self, said: Say) -> str:
        return said.finish or ("tool_use" if said.calls else "end_turn")

    def _message(self, body: Mapping[str, Any], turn: int) -> dict[str, Any]:
        return {
            "id": f"msg_{turn}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "stop_sequence": None,
        }


SERVERS: Mapping[str, type[ModelServer]] = {each.wire: each for each in (OpenAIServer, AnthropicServer)}


def _names_problem(names: Iterable[str]) -> str:
    return next((f"{name!r} is no name of a tool" for name in names if not TOOL_NAME.fullmatch(name)), "")


def _turn(messages: Sequence[Any]) -> int:
    """How many answers are there already, and one."""
    return 1 + sum(1 for message in messages if message["role"] == "assistant")


def _with_ids(said: Say, turn: int) -> Iterator[tuple[str, Call]]:
    for index, each in enumerate(said.calls, start=1):
        yield (f"call_{turn}_{index}" if each.id is None else each.id), each


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH)]


def _chat(body: Mapping[str, Any], turn: int, object: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn}", "object": object, "created": 1_700_000_000, "model": body.get("model")}


def _sse(data: Any) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _named(event: str, data: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps({'type': event, **data})}\n\n".encode()


async def _main(wire: str, script: str, port: int) -> None:
    async with SERVERS[wire](read(script), port=port) as server:
        print(server.port, flush=True)
        # Whoever started us holds our input; its end ends us.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.stdin.readline(), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
