"""What one process tells the others, as text: `{"joined", "lines", "news", "wanted", "cancelled"}`, all optional.

A notice says only where to look. What it does not know, a reader passes over, so that releases may run side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from placet_server.model.line import Line

# Around the words of one kind: quotes, colon, brackets, comma.
_FRAME_BYTES = 24


class Notice(NamedTuple):
    """`joined`: whoever sends it has just begun to listen. `lines` have work. `news`: actions that have moved.
    `wanted`: actions whose news the sender asks for. `cancelled`: actions that are to stop, wherever they run."""

    joined: bool = False
    lines: tuple[Line, ...] = ()
    news: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


def packed(notice: Notice, bytes_max: int) -> list[str]:
    """In as many texts as it takes for each to have at most so many bytes."""
    texts: list[str] = []
    document: dict[str, Any] = {"joined": True} if notice.joined else {}
    size = _FRAME_BYTES
    for kind, words in _kinds(notice):
        for word in words:
            added = len(orjson.dumps(word)) + 1 + (0 if kind in document else _FRAME_BYTES)
            if document and size + added > bytes_max:
                texts.append(orjson.dumps(document).decode())
                document, size = {}, _FRAME_BYTES
                added += _FRAME_BYTES
            document.setdefault(kind, []).append(word)
            size += added
    if document:
        texts.append(orjson.dumps(document).decode())
    return texts


def unpacked(text: str) -> Notice:
    """Nothing, where it is not understood."""
    try:
        document = orjson.loads(text)
    except ValueError:
        return Notice()
    if not isinstance(document, dict):
        return Notice()
    return Notice(
        joined=document.get("joined") is True,
        lines=tuple(_lines(document.get("lines"))),
        news=tuple(_ids(document.get("news"))),
        wanted=tuple(_ids(document.get("wanted"))),
        cancelled=tuple(_ids(document.get("cancelled"))),
    )


def _kinds(notice: Notice) -> Iterator[tuple[str, Iterable[Any]]]:
    yield "cancelled", notice.cancelled
    yield "lines", map(list, notice.lines)
    yield "news", notice.news
    yield "wanted", notice.wanted


def _lines(words: object) -> Iterator[Line]:
    for word in words if isinstance(words, list) else ():
        if isinstance(word, list) and len(word) == 4 and all(isinstance(part, str) for part in word):
            yield Line(*word)


def _ids(words: object) -> Iterator[str]:
    return (word for word in (words if isinstance(words, list) else ()) if isinstance(word, str))
