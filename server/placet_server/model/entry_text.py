"""What a run remembers as it is stored: each entry the text of one JSON document.

A provider's message is kept as it came: one changed byte breaks a signature, and with it the conversation. So messages
are never parsed and written again here. They stand at the end of a body, joined as they are, and the body begins with
the lengths of their texts, by which they are cut out again:

    {"sizes":[512,88],"turn":3,…,"messages":[<512 characters>,<88 characters>]}
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import orjson

from placet_server.model.document import DocumentRefused, read, written
from placet_server.model.entry import (
    Answered,
    Body,
    Compacted,
    Entry,
    EntryType,
    Failed,
    Opened,
    Requested,
)

ENTRY_BYTES_MAX = 3 * 2**20
# As callers are told that something of a run cannot be read.
MEMORY_BROKEN = "memory_broken"

_SIZES = re.compile(r'\{"sizes":\[([0-9,]*)\],?')
_MESSAGES = '"messages":['
_KINDS: dict[EntryType, type[Body]] = {
    kind.type: kind for kind in (Opened, Requested, Answered, Failed, Compacted)
}


class EntryRefused(ValueError):
    """This is no entry of ours, or too large for one."""


def entry_of(body: Body) -> Entry:
    """Raises EntryRefused if it would be larger than an entry may be."""
    text = to_text(body)
    # A character has at most four bytes.
    if len(text) * 4 > ENTRY_BYTES_MAX and (size := len(text.encode())) > ENTRY_BYTES_MAX:
        raise EntryRefused(f"{size} bytes are more than an entry may have, {ENTRY_BYTES_MAX}")
    return Entry(type=body.type, turn=0 if isinstance(body, Opened) else body.turn, body=text)


def to_text(body: Body) -> str:
    messages = messages_of(body)
    head = written(body)
    head.pop("messages", None)
    begin = orjson.dumps({"sizes": [len(message) for message in messages], **head}).decode()
    return f"{begin[:-1]},{_MESSAGES}{','.join(messages)}]}}"


def of_text(type: EntryType, text: str) -> Body:
    """Members that this release does not know, at whatever depth, are passed over: a later one may have written them.

    Raises EntryRefused.
    """
    kind = _KINDS[type]
    head, messages = _cut(text)
    try:
        body = read(cast(Any, kind), orjson.loads(head), passes_over_unknown=True)
    except (orjson.JSONDecodeError, DocumentRefused) as error:
        raise EntryRefused(f"{type.value}: {error}") from None
    return cast(Body, replace(body, messages=messages) if messages else body)


def messages_of(body: Body) -> tuple[str, ...]:
    return () if isinstance(body, Opened | Failed) else body.messages


def _cut(text: str) -> tuple[str, tuple[str, ...]]:
    """The document without its messages, and these, exactly as they were put in."""
    found = _SIZES.match(text)
    if found is None:
        raise EntryRefused("an entry begins with the sizes of its messages")
    sizes = [int(size) for size in found[1].split(",") if size]
    begin = len(text) - 2 - sum(sizes) - max(len(sizes) - 1, 0)
    head_end = begin - len(_MESSAGES)
    if head_end < found.end() or text[head_end:begin] != _MESSAGES or not text.endswith("]}"):
        raise EntryRefused("its messages do not have the sizes that it tells")
    messages, at = [], begin
    for index, size in enumerate(sizes):
        messages.append(text[at : at + size])
        at += size + 1
        if index < len(sizes) - 1 and text[at - 1] != ",":
            raise EntryRefused("its messages do not have the sizes that it tells")
    return "{" + text[found.end() : head_end].rstrip(",") + "}", tuple(messages)
