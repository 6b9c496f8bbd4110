"""Messages of which less is told than they have: only so that they can be summed up, where all of them are too much for
any request, the model's own too. What is kept of them stays whole; what stands for them is the summary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SHARE_BYTES_MIN = 128
_THOUGHT = "[what the model thought is left out here]"


def clipped(texts: Sequence[str], bytes_max: int, *, with_answers: bool = True) -> list[str]:
    """Of messages as they are kept about so many bytes in all. Each that has more than an equal share keeps its
    beginning and its end, and says how much is left out; without `with_answers` those of the model stay as they are,
    as who goes on from them has to send them.
    """
    share = max(bytes_max // max(len(texts), 1), SHARE_BYTES_MIN)
    return [_clipped(text, share, with_answers) if len(text.encode()) > share else text for text in texts]


def _clipped(text: str, share: int, with_answers: bool) -> str:
    message = json.loads(text)
    if message["kind"] == "request":
        places = [place for part in message["parts"] for place in _places(part)]
        _shorten(places, share)
    elif with_answers:
        _clip_answer(message, share)
    else:
        return text
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _clip_answer(message: dict[str, Any], share: int) -> None:
    """Only to be summed up. What its provider has signed, or knows by an id, is no longer that."""
    parts = [part for part in message["parts"] if not part.get("signature")]
    message["parts"] = parts = parts or [{"part_kind": "text", "content": _THOUGHT}]
    for part in parts:
        if part.get("part_kind") != "thinking":
            part.pop("id", None)
    _shorten([(part, "content") for part in parts if "content" in part], share // 2)
    calls = [part for part in parts if "args" in part]
    for part in calls:
        args = part["args"]
        told = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        each = share // (4 * len(calls))
        if len(told.encode()) > each:
            # An object, as every provider wants, in which each quote is told as up to four bytes.
            part["args"] = {"arguments": _shortened(told, each)}


def _shorten(places: Sequence[tuple[Any, Any]], bytes_max: int) -> None:
    each = bytes_max // max(len(places), 1)
    for holder, name in places:
        holder[name] = _shortened(holder[name], each)


def _places(part: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Where words, or pictures, stand in it."""
    content = part.get("content")
    if isinstance(content, list):
        return [(content, index) for index in range(len(content))]
    return [(part, "content")]


def _shortened(said: Any, bytes_max: int) -> Any:
    if not isinstance(said, str):
        return "[a picture is left out here]" if isinstance(said, dict) and "data" in said else said
    told = said.encode()
    if len(told) <= bytes_max:
        return said
    half = bytes_max // 2
    begin, end = (piece.decode(errors="ignore") for piece in (told[:half], told[len(told) - half :]))
    return f"{begin}[{len(told) - 2 * half} bytes are left out here]{end}"
