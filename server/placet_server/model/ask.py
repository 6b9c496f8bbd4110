"""What an agent is asked: the parts of one message, arguments for its instructions, and what the run may spend. It is
the input of every agent, so that whoever can ask one can ask all; and as all of it is input, people and policies see
it, and a key is bound to it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from placet_server.model.json_text import canonicalize_value
from placet_server.model.usage import BUDGET_MAX, Budget

PARTS_MAX = 64
# Of what an agent says at once, whatever a provider makes of it; one more may be its result.
SAID_PARTS_MAX = 255
TEXT_LENGTH_MAX = 2**20
BINARY_BYTES_MAX = 2 * 2**20
# What a message has beside its parts, where it is kept, and each picture beside its bytes.
ENVELOPE_BYTES = 1024
PICTURE_BYTES = 512
FILE_NAME_LENGTH_MAX = 255
ARGUMENTS_MAX = 32
ARGUMENT_LENGTH_MAX = 64 * 1024

ARGUMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MEDIA_TYPE = r"^[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}$"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

_PART: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": TEXT_LENGTH_MAX},
        "json": True,
        "binary": {
            "type": "object",
            "additionalProperties": False,
            "required": ["media_type", "data"],
            "properties": {
                "media_type": {"type": "string", "pattern": _MEDIA_TYPE},
                "data": {
                    "type": "string",
                    "contentEncoding": "base64",
                    "minLength": 4,
                    "maxLength": -(-BINARY_BYTES_MAX // 3) * 4,
                    "pattern": _BASE64,
                },
                "name": {"type": "string", "minLength": 1, "maxLength": FILE_NAME_LENGTH_MAX},
            },
        },
    },
}
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["parts"],
    "properties": {
        "parts": {"type": "array", "minItems": 1, "maxItems": PARTS_MAX, "items": _PART},
        "arguments": {
            "type": "object",
            "maxProperties": ARGUMENTS_MAX,
            "propertyNames": {"pattern": f"^{ARGUMENT_NAME.pattern}$"},
            "additionalProperties": {"type": "string", "maxLength": ARGUMENT_LENGTH_MAX},
        },
        # What this run may spend, within what its agent and the server let it.
        "budget": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                each.name: {"type": "integer", "minimum": 0, "maximum": getattr(BUDGET_MAX, each.name)}
                for each in fields(Budget)
            },
        },
    },
}
INPUT_SCHEMA_TEXT = canonicalize_value(INPUT_SCHEMA, bytes_max=64 * 1024).text
"""Part of every agent's contract digest: a release that changes it changes the digest of every agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """`media_type` is what the caller says it is. `name`: of a file, or empty."""

    media_type: str
    data: bytes
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of the three is set; `json` is canonical text."""

    text: str | None = None
    json: str | None = None
    binary: Binary | None = None


def parts_of(value: dict[str, Any]) -> tuple[Part, ...]:
    """Of an input that fits INPUT_SCHEMA."""
    return tuple(part_of(each) for each in value["parts"])


def said_texts(texts: Sequence[str]) -> list[str]:
    """Those that say something; all beyond the bound are one."""
    said = [text for text in texts if text]
    return (
        said
        if len(said) <= SAID_PARTS_MAX
        else [*said[: SAID_PARTS_MAX - 1], "".join(said[SAID_PARTS_MAX - 1 :])]
    )


def arguments_of(value: dict[str, Any]) -> dict[str, str]:
    """Of an input that fits INPUT_SCHEMA."""
    return dict(value.get("arguments", {}))


def budget_of(value: dict[str, Any]) -> Budget:
    """Of an input that fits INPUT_SCHEMA: what whoever asks bounds it by, beside all other bounds."""
    return Budget(**value.get("budget", {}))


def words_bytes(value: dict[str, Any]) -> int:
    """Of an input that fits INPUT_SCHEMA: what is said in it, beside what is only shown."""
    said = (
        part.get("text") or json.dumps(part.get("json", ""), ensure_ascii=False) for part in value["parts"]
    )
    return sum(len(text.encode()) for text in said)


def kept_bytes(value: dict[str, Any]) -> int:
    """Of an input that fits INPUT_SCHEMA: as what a run remembers at most; a JSON value is a text there, with each of
    its quotes escaped.
    """
    return ENVELOPE_BYTES + sum(_kept_bytes(part) for part in value["parts"])


def _kept_bytes(part: dict[str, Any]) -> int:
    if "binary" in part:
        return PICTURE_BYTES + len(part["binary"]["data"])
    said = (
        part["text"]
        if "text" in part
        else json.dumps(part["json"], ensure_ascii=False, separators=(",", ":"))
    )
    return len(json.dumps(said, ensure_ascii=False).encode()) + 1


def budget_value(budget: Budget) -> dict[str, int]:
    """As an input has it."""
    return {
        each.name: min(bound, getattr(BUDGET_MAX, each.name))
        for each in fields(Budget)
        if (bound := getattr(budget, each.name))
    }


def part_of(value: dict[str, Any]) -> Part:
    """Of one that fits its schema."""
    if "text" in value:
        return Part(text=value["text"])
    if "json" in value:
        return Part(json=canonicalize_value(value["json"], bytes_max=4 * 2**20).text)
    binary = value["binary"]
    return Part(
        binary=Binary(
            media_type=binary["media_type"], data=b64decode(binary["data"]), name=binary.get("name", "")
        )
    )
