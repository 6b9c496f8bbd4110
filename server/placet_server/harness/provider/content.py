"""What was told to a model and what it said, as OpenTelemetry's conventions have messages: for spans, and only where
the operator wants it there. What contracts call sensitive is left out.

Texts of messages are read here as what they are, JSON of the library's, without the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from placet_server.harness.provider.answer import FINAL_OUTPUT
from placet_server.model.entry import PinnedTool
from placet_server.model.redaction import hidden_text, is_hidden

# Of all messages of one attribute: the newest that fit.
CONTENT_BYTES_MAX = 64 * 1024
HIDDEN = "[sensitive]"

_EVERYTHING = ("",)
_ROLES = {"system-prompt": "system", "user-prompt": "user", "retry-prompt": "user", "tool-return": "tool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitive:
    """What is left out: `own`: of the input and output of the agent; `tools`: of each tool, by its alias. All of a tool
    that is not among them.
    """

    own: tuple[str, ...] = ()
    tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, alias: str) -> tuple[str, ...]:
        return self.own if alias == FINAL_OUTPUT else self.tools.get(alias, _EVERYTHING)

    def shows(self, member: str) -> bool:
        """Of the agent's input or output."""
        return not is_hidden(f"/{member}", self.own)


def paths_of(tool: PinnedTool) -> tuple[str, ...]:
    """In what a model says to it, and is told. An agent is said a message, of which its own input has parts."""
    if tool.delegate and is_hidden("/parts", tool.sensitive):
        return (*tool.sensitive, "/message")
    return tool.sensitive


def input_messages(texts: Sequence[str], sensitive: Sensitive) -> str:
    """JSON: the newest of them that fit."""
    shown: list[bytes] = []
    size = 0
    for text in reversed(texts):
        fresh = [orjson.dumps(each) for each in reversed(list(_messages(text, sensitive)))]
        size += sum(map(len, fresh))
        if size > CONTENT_BYTES_MAX:
            break
        shown += fresh
    return (b"[" + b",".join(reversed(shown)) + b"]").decode()


def output_messages(text: str, finish: str, sensitive: Sensitive) -> str:
    """JSON of the one message."""
    said = [{**each, "finish_reason": finish} for each in _messages(text, sensitive)]
    shown = orjson.dumps(said)
    return shown.decode() if len(shown) <= CONTENT_BYTES_MAX else "[]"


def instructions(text: str, sensitive: Sensitive) -> str:
    """JSON. They are rendered from the arguments."""
    shown = text if sensitive.shows("arguments") else HIDDEN
    return orjson.dumps([_text(shown[:CONTENT_BYTES_MAX])]).decode()


def redacted(text: str, paths: Sequence[str]) -> str:
    """A JSON document without what the paths lead to; of what is none, all or nothing."""
    shown = _redacted(text, paths)
    if not isinstance(shown, str):
        shown = orjson.dumps(shown).decode()
    return shown[:CONTENT_BYTES_MAX]


def _messages(text: str, sensitive: Sensitive) -> Iterable[dict[str, Any]]:
    """A request with results and words is two."""
    message = orjson.loads(text)
    by_role: dict[str, list[dict[str, Any]]] = {}
    for part in message["parts"]:
        role = "assistant" if message["kind"] == "response" else _ROLES.get(part["part_kind"], "user")
        by_role.setdefault(role, []).append(_part(part, sensitive))
    return [{"role": role, "parts": parts} for role, parts in by_role.items()]


def _part(part: Mapping[str, Any], sensitive: Sensitive) -> dict[str, Any]:
    match part["part_kind"]:
        case "tool-call":
            shown = _redacted(part.get("args") or "{}", sensitive.of(part["tool_name"]))
            return {
                "type": "tool_call",
                "id": part.get("tool_call_id"),
                "name": part["tool_name"],
                "arguments": shown,
            }
        case "tool-return":
            shown = _redacted(part.get("content"), sensitive.of(part["tool_name"]))
            return {"type": "tool_call_response", "id": part.get("tool_call_id"), "response": shown}
        case "thinking":
            shown = part.get("content", "") if sensitive.shows("parts") else HIDDEN
            return {"type": "reasoning", "content": shown}
        case _:
            return _text(_words(part.get("content"), sensitive))


def _words(content: Any, sensitive: Sensitive) -> str:
    """What is said to the run or by it: its input and output have it as parts."""
    if not sensitive.shows("parts"):
        return HIDDEN
    pieces = content if isinstance(content, list) else [content]
    return "\n".join(piece if isinstance(piece, str) else "[binary]" for piece in pieces if piece)


def _redacted(value: Any, paths: Sequence[str]) -> Any:
    if not paths:
        return value
    try:
        document = orjson.loads(value) if isinstance(value, str) else value
        return orjson.loads(hidden_text(document, paths)[0])
    except ValueError:
        return HIDDEN


def _text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}
