"""Agents that are in no manifest: whoever asks says what the agent is, for this one run. Its input says all of it, so
people see it and policies decide by it; its tools and delegates are names and no patterns, and always there, so that a
policy can forbid by them without leaving a gap.
"""

from __future__ import annotations

from typing import Any

from placet_server.model.agent import (
    DELEGATES_MAX,
    INSTRUCTIONS_BYTES_MAX,
    MODEL_LENGTH_MAX,
    NAME_LENGTH_MAX,
    TOOLS_MAX,
    AgentSpec,
    DelegateChoice,
    ModelSettings,
    ToolChoice,
)
from placet_server.model.ask import INPUT_SCHEMA as ASKED
from placet_server.model.json_text import canonicalize_value

CAPABILITY = "placet.agent"

_NAMES = {
    "type": "array",
    "uniqueItems": True,
    "items": {
        "type": "string",
        "maxLength": NAME_LENGTH_MAX,
        "pattern": r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$",
        # Nothing of the server's own: see `is_reserved`.
        "not": {"pattern": r"^placet\."},
    },
}
_SPEC: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model", "tools", "delegates"],
    "properties": {
        "model": {
            "type": "string",
            "minLength": 1,
            "maxLength": MODEL_LENGTH_MAX,
            "pattern": r"^[a-z0-9][a-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._:/@-]*)?$",
        },
        # A character has at most four bytes.
        "instructions": {"type": "string", "maxLength": INSTRUCTIONS_BYTES_MAX // 4},
        "tools": {**_NAMES, "maxItems": TOOLS_MAX},
        "delegates": {**_NAMES, "maxItems": DELEGATES_MAX},
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    },
}
INPUT_SCHEMA_TEXT = canonicalize_value(
    {
        **ASKED,
        "required": [*ASKED["required"], "agent"],
        "properties": {**ASKED["properties"], "agent": _SPEC},
    },
    bytes_max=64 * 1024,
).text


def spec_of(value: dict[str, Any]) -> AgentSpec:
    """Of an input that fits the schema. What it does not say is as in any other agent."""
    said = value["agent"]
    settings = ModelSettings(max_tokens=said["max_tokens"]) if "max_tokens" in said else ModelSettings()
    return AgentSpec(
        model=said["model"],
        instructions=said.get("instructions", ""),
        tools=tuple(ToolChoice(name=name) for name in said["tools"]),
        delegates=tuple(DelegateChoice(agent=name) for name in said["delegates"]),
        settings=settings,
    )
