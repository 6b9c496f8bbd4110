"""Other agents as tools of an agent: what the model says to one, what that is asked, and what the model is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placet_server.core.execution.child import ChildEnd
from placet_server.harness.plan import PlannedCall
from placet_server.model.agent import AgentSpec, arguments_in
from placet_server.model.ask import ARGUMENT_LENGTH_MAX, TEXT_LENGTH_MAX, budget_value
from placet_server.model.entry import Told
from placet_server.model.json_text import canonicalize_value
from placet_server.model.usage import Budget, Counters, Usage

_BYTES_MAX = 3 * 2**20


def schema_of(spec: AgentSpec) -> str:
    """Of what the model says to this agent: a message, and what its instructions have places for."""
    names = sorted(arguments_in(spec.instructions))
    properties: dict[str, Any] = {
        "message": {"type": "string", "minLength": 1, "maxLength": TEXT_LENGTH_MAX},
    }
    if names:
        text = {"type": "string", "maxLength": ARGUMENT_LENGTH_MAX}
        properties["arguments"] = {
            "type": "object",
            "additionalProperties": False,
            "required": names,
            "properties": dict.fromkeys(names, text),
        }
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": properties,
    }
    return canonicalize_value(schema, bytes_max=_BYTES_MAX).text


def input_of(said: str, share: Budget | None) -> str:
    """What the agent is asked: what the model said, which fits the schema, and its share of the budget."""
    value = json.loads(said)
    asked: dict[str, Any] = {"parts": [{"text": value["message"]}]}
    if "arguments" in value:
        asked["arguments"] = value["arguments"]
    if share is not None and (bounds := budget_value(share)):
        asked["budget"] = bounds
    return canonicalize_value(asked, bytes_max=_BYTES_MAX).text


def record_of(call: PlannedCall, ends: Mapping[int, ChildEnd], spent: Mapping[str, Counters]) -> Told:
    """What is kept of how a call ended. One that is told what an equal one was has cost nothing itself."""
    end = ends.get(call.call if call.alias_of is None else call.alias_of)
    if end is None:
        return Told(call=call.call)
    outcome = end.outcome
    told = Told(
        call=call.call,
        action_id=outcome.action_id,
        kind=outcome.kind.value,
        # An action says itself why it ended.
        reason="" if outcome.action_id else outcome.reason or "",
    )
    if call.tool is None or not call.tool.delegate or not call.step:
        return told
    counters = spent.get(call.step, Counters())
    return replace(
        told,
        turns=counters.turns,
        requests=counters.requests,
        calls=counters.calls,
        usage=Usage(
            input_tokens=counters.input_tokens,
            output_tokens=counters.output_tokens,
            cached_tokens=counters.cached_tokens,
        ),
        cost_micros=counters.cost_micros,
        unpriced=counters.unpriced,
        reserved_tokens=counters.reserved_tokens,
        reserved_micros=counters.reserved_micros,
    )


def words_of(output_json: str) -> str:
    """Of what it answered: its words, if it has nothing but words."""
    output = json.loads(output_json)
    parts = output.get("parts") if isinstance(output, dict) and output.keys() == {"parts"} else None
    if isinstance(parts, list) and all(isinstance(part, dict) and part.keys() == {"text"} for part in parts):
        return "\n\n".join(str(part["text"]) for part in parts)
    return output_json
