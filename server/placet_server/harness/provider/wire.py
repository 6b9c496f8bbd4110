"""Messages as the library's and as text. What is stored is what `dump` gave, and is never dumped again.

Whatever the library adds of its own, times and ids of a run, is put to nothing first: two conversations that went alike
are the same text. What the provider said, its times and signatures included, stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from placet_server.harness.alias import LENGTH_MAX as NAME_LENGTH_MAX
from placet_server.harness.provider.answer import Answer, ModelCall, Picture, ResultPart
from placet_server.model.usage import Price, Usage

_NOT_JSON = "INVALID_JSON"
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_LENGTH_MAX}}}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# For which a provider ends an answer that the model has not; a reason that nobody knows is none of them.
_CUT = frozenset({"length", "content_filter", "error"})
# A number that JSON, a double and a sum of a thousand of them in the store can hold.
COUNT_MAX = 2**53
# Of messages that are kept as they were loaded: so many, so long.
LOADED_MAX, LOADED_LENGTH_MAX = 1024, 4096


def request_text(prompt: Sequence[str | Picture] = (), results: Sequence[ResultPart] = ()) -> str:
    """A message to the model: results of its calls first, as every provider wants them, then what is said to it."""
    parts: list[Any] = [
        ToolReturnPart(
            tool_name=result.tool, content=result.text, tool_call_id=result.id, outcome=result.outcome
        )
        for result in results
    ]
    if prompt:
        parts.append(UserPromptPart(content=_content(prompt)))
    return dump(ModelRequest(parts=parts))


def dump(message: ModelMessage) -> str:
    """Raises ValueError for what is no Unicode."""
    # Members of other types than they should have are found where an answer is read back.
    return ModelMessagesTypeAdapter.dump_json([_still(message)], warnings="none")[1:-1].decode()


def load(texts: Sequence[str]) -> list[ModelMessage]:
    """Nobody may change what it gives: the library does not either. Raises ValueError."""
    return [_loaded(text) if len(text) <= LOADED_LENGTH_MAX else _load(text) for text in texts]


def _load(text: str) -> ModelMessage:
    (message,) = ModelMessagesTypeAdapter.validate_json(f"[{text}]")
    return message


# With each turn a run tells all of them again.
_loaded = lru_cache(LOADED_MAX)(_load)


def answer_of(response: ModelResponse, price: Price | None) -> Answer:
    """What is kept of an answer that is known to have ended. Raises ValueError for what is no Unicode or could not be
    read back, and whatever comes of members that are of other types than they should be.
    """
    response = _told_apart(response)
    usage = _usage(response, price)
    kept = replace(
        response, parts=[_sendable(part) for part in response.parts], usage=_countable(response.usage)
    )
    return Answer(
        text=_readable(dump(kept)),
        said=tuple(part.content for part in response.parts if isinstance(part, TextPart)),
        calls=tuple(
            ModelCall(part.tool_call_id, part.tool_name, _arguments(part))
            for part in response.parts
            if isinstance(part, ToolCallPart)
        ),
        usage=usage,
        cost_micros=None if usage is None or price is None else price.cost(usage),
        finish=finish_of(response),
        cut_off=_is_cut_off(response),
    )


def _readable(text: str) -> str:
    """Libraries take what a provider sends for what it should be, and look at no type before it is read back: then it
    would be too late, as its calls have been made.
    """
    if dump(load([text])[0]) != text:
        raise ValueError("it would be read back as something else")
    return text


def _is_cut_off(response: ModelResponse) -> bool:
    last = response.parts[-1] if response.parts else None
    if not isinstance(last, ToolCallPart):
        return False
    # Without arguments it may have been cut off before the first of them, whatever an unknown reason means.
    known = response.finish_reason is not None or not finish_of(response)
    return response.finish_reason in _CUT or not (known or last.args)


def finish_of(response: ModelResponse) -> str:
    """Why the provider stopped, in its own word; "" if it did not say so, and then the answer may be cut off: the
    library tells a stream that ended early from a whole one by nothing else.
    """
    details = response.provider_details or {}
    said = details.get("finish_reason")
    if isinstance(said, str) and said:
        return said
    # What a filter of the provider took out has no word of its own; there is no call in it.
    return "content_filter" if response.finish_reason == "content_filter" else ""


def _content(prompt: Sequence[str | Picture]) -> str | list[UserContent]:
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    return [
        part if isinstance(part, str) else BinaryContent(data=part.data, media_type=part.media_type)
        for part in prompt
    ]


def _still(message: ModelMessage) -> ModelMessage:
    parts: Any = [_timeless(part) for part in message.parts]
    if isinstance(message, ModelRequest):
        return replace(
            message, parts=parts, timestamp=_NO_TIME, run_id=None, conversation_id=None, metadata=None
        )
    return replace(
        message,
        parts=parts,
        timestamp=_NO_TIME,
        run_id=None,
        conversation_id=None,
        metadata=None,
        # Where the operator's models are is nothing that the tenant's records tell.
        provider_url=None,
        failed_attempts=None,
    )


def _timeless(part: Any) -> Any:
    return replace(part, timestamp=_NO_TIME) if hasattr(part, "timestamp") else part


def _told_apart(response: ModelResponse) -> ModelResponse:
    """Each call with an id of its own, and under a name that may be sent. Some servers give no id, or one twice, and
    results would be mixed up; and a name that a model made up would be refused with every request from then on.
    """
    seen: set[str] = set()
    parts: list[Any] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            id = _free_id(part.tool_call_id, seen)
            seen.add(id)
            name = _sendable_name(part.tool_name)
            if (id, name) != (part.tool_call_id, part.tool_name):
                part = replace(cast(Any, part), tool_call_id=id, tool_name=name)
        parts.append(part)
    return replace(response, parts=parts)


def _free_id(wanted: str, taken: Collection[str]) -> str:
    stem = wanted or "call"
    id, number = wanted, 1
    while id in taken or not id:
        number += 1
        id = f"{stem}-{number}"
    return id


def _sendable_name(name: str) -> str:
    """One that is nobody's alias, if it had to be changed."""
    if _NAME.fullmatch(name):
        return name
    digest = sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{_NOT_IN_NAME.sub('_', name)[: NAME_LENGTH_MAX - 9]}-{digest}"


def _sendable(part: Any) -> Any:
    """Arguments that were read and cannot be written, as infinity and half a character: a client that writes them anew
    would fail at this message for ever after. They are kept as text, in the form that the library has for what is not
    JSON at all.
    """
    if not isinstance(part, ToolCallPart) or part.args is None:
        return part
    try:
        value = json.loads(part.args) if isinstance(part.args, str) else part.args
    except RecursionError:
        return replace(part, args={_NOT_JSON: part.args})
    except ValueError:
        return part
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return replace(part, args={_NOT_JSON: part.args if isinstance(part.args, str) else repr(part.args)})
    return part


def _arguments(part: ToolCallPart) -> str:
    if part.args is None:
        return ""
    return part.args if isinstance(part.args, str) else json.dumps(part.args, ensure_ascii=False)


def _usage(response: ModelResponse, price: Price | None) -> Usage | None:
    """None where the provider said nothing, since no request has no tokens, or nothing that can be counted."""
    told = response.usage
    wanted = (told.input_tokens, told.output_tokens, told.cache_read_tokens)
    input, output, cached = (_count(number) for number in wanted)
    if input is None or output is None or cached is None or not (input or output):
        return None
    usage = Usage(input_tokens=input, output_tokens=output, cached_tokens=min(cached, input))
    return None if price is not None and price.cost(usage) > COUNT_MAX else usage


def _count(number: object) -> int | None:
    """Some write whole numbers with a point."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= COUNT_MAX:
        return None
    return int(number) if number == int(number) else None


def _countable(told: RequestUsage) -> RequestUsage:
    """As it was told, without what is no count."""
    numbers = {each.name: getattr(told, each.name) for each in fields(told)}
    counts: Any = {name: _count(n) or 0 for name, n in numbers.items() if name.endswith("_tokens")}
    details = {name: count for name, n in told.details.items() if (count := _count(n)) is not None}
    return replace(told, **counts, details=details)
