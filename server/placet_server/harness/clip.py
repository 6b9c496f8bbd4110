"""Messages of which less is told than they have: only so that they can be summed up, where all of them are too much for
any request. What is kept of them stays whole; what stands for them is the summary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SHARE_BYTES_MIN = 128


def clipped(texts: Sequence[str], bytes_max: int) -> list[str]:
    """Of messages as they are kept about so many bytes in all; those of the model stay, which are as long as it may say
    at once. Each that has more than an equal share keeps its beginning and its end, and says how much is left out.
    """
    share = max(bytes_max // max(len(texts), 1), SHARE_BYTES_MIN)
    return [_clipped(text, share) if len(text.encode()) > share else text for text in texts]


def _clipped(text: str, share: int) -> str:
    message = json.loads(text)
    if message["kind"] != "request":
        return text
    places = [place for part in message["parts"] for place in _places(part)]
    each = share // max(len(places), 1)
    for holder, name in places:
        holder[name] = _shortened(holder[name], each)
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


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
