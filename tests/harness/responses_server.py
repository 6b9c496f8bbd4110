"""The wire of OpenAI's responses, as much of it as shows whether an answer is whole and is sent again as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from placet.testing.model_connection import ModelServer
from placet.testing.model_script import FailInStream, Say


class ResponsesServer(ModelServer):
    wire = "openai_responses"
    _prefix = "/v1"
    _path = "/responses"

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {self._key}"

    def _turn_of(self, body: Mapping[str, Any]) -> int:
        items = body["input"] if isinstance(body["input"], list) else []
        kinds = ["call" if item.get("type") == "function_call" else item.get("role") for item in items]
        # What stands together was said together.
        return 1 + sum(
            1
            for before, kind in zip([None, *kinds], kinds, strict=False)
            if kind in ("call", "assistant") and before not in ("call", "assistant")
        )

    def _problem(self, body: Mapping[str, Any]) -> str:
        items = body["input"] if isinstance(body["input"], list) else []
        called = [item["call_id"] for item in items if item.get("type") == "function_call"]
        told = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        return "" if sorted(called) == sorted(told) else f"calls {called}, outputs {told}"

    def _error(self, status: int, message: str, code: str) -> Any:
        return {"error": {"message": message, "type": "error", "param": None, "code": code or None}}

    def _whole(self, said: Say, body: Mapping[str, Any], turn: int) -> Any:
        raise NotImplementedError

    def _events(self, said: Say, body: Mapping[str, Any], turn: int) -> Iterator[bytes]:
        items = _items(said, turn)
        yield _event("response.created", response=_response(body, turn, [], "in_progress", None))
        for index, item in enumerate(items):
            empty = {**item, "status": "in_progress"}
            if item["type"] == "message":
                yield _event("response.output_item.added", output_index=index, item={**empty, "content": []})
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield _event("response.output_text.delta", **place, delta=said.text, logprobs=[])
            else:
                yield _event(
                    "response.output_item.added", output_index=index, item={**empty, "arguments": ""}
                )
                place = {"item_id": item["id"], "output_index": index}
                yield _event("response.function_call_arguments.delta", **place, delta=item["arguments"])
                yield _event(
                    "response.function_call_arguments.done",
                    **place,
                    arguments=item["arguments"],
                    name=item["name"],
                )
            yield _event("response.output_item.done", output_index=index, item=item)
        yield _event("response.completed", response=_response(body, turn, items, "completed", said.usage))

    def _stream_error(self, failure: FailInStream) -> bytes:
        return _event("error", code=failure.type, message=failure.message, param=None)


def _items(said: Say, turn: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]
        message = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for number, call in enumerate(said.calls, start=1):
        ids = {"id": f"fc_{turn}_{number}", "call_id": f"call_{turn}_{number}"}
        made = {"name": call.tool, "arguments": call.arguments, "status": "completed"}
        items.append({"type": "function_call", **ids, **made})
    return items


def _response(
    body: Mapping[str, Any], turn: int, items: list[Any], status: str, usage: tuple[int, int] | None
) -> dict[str, Any]:
    told = None
    if usage is not None:
        told = {
            "input_tokens": usage[0],
            "output_tokens": usage[1],
            "total_tokens": sum(usage),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    return {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": body.get("model"),
        "status": status,
        "output": items,
        "usage": told,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _event(type: str, **members: Any) -> bytes:
    data = json.dumps({"type": type, "sequence_number": 0, **members})
    return f"event: {type}\ndata: {data}\n\n".encode()
