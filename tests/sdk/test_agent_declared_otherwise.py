"""An agent reaches the wire as its author wrote it, or is refused where it is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import placet
from placet import Budget, DeclarationError, DelegateChoice, Memory, ModelSettings, ProviderRetry, ToolChoice
from placet.v1 import agent_pb2, capability_pb2


@dataclass
class Verdict:
    refund: bool
    reason: str = ""


def test_what_is_not_said_is_left_to_the_server() -> None:
    app = placet.App("desk")
    agent = app.agent("support.helper", model="fast")
    assert agent_pb2.AgentSpec(model="fast") == agent.capability.agent
    assert ("", "", capability_pb2.EFFECT_CLASS_COMPOSED) == (
        agent.capability.input_schema_json,
        agent.capability.output_schema_json,
        agent.capability.contract.effect,
    )
    assert ((agent,), ()) == (app.agents, app.tools)


def test_everything_that_is_said_is_on_the_wire() -> None:
    app = placet.App("desk")
    writer = app.agent("support.writer", model="fast")
    app.tool("orders.find", "read")(lambda: None)
    app.agent(
        "support.helper",
        version="2",
        model="openai:gpt-5",
        instructions="Help {{name}}.",
        tools=[
            "orders.*",
            ToolChoice("payments.refund", version="1", scopes=[]),
            ToolChoice("a.b", scopes=["x"]),
        ],
        delegates=[
            writer,
            "support.reader",
            DelegateChoice(writer, budget=Budget(turns=2), description="Writes."),
        ],
        output=Verdict,
        budget=Budget(
            turns=5, calls=6, equal_calls=2, tokens=9, cost_micros=8, active_time=timedelta(minutes=1)
        ),
        memory=Memory(compact_at_tokens=1000, keep_turns=4),
        settings=ModelSettings(
            max_tokens=100, temperature=0.0, parallel_tool_calls=False, request_timeout=1.5
        ),
        provider_retry=ProviderRetry(tries_max=2, delay_max=10),
        output_repairs_max=0,
        credential="desk",
        title="Helper",
        hazards=["message"],
        no_approval="Each message is asked for by itself.",
        timeout=60,
    )
    declared = app.manifest().capabilities
    assert ["support.writer", "orders.find", "support.helper"] == [each.name for each in declared]
    spec = declared[2].agent
    assert [("orders.*", [], False), ("payments.refund", [], True), ("a.b", ["x"], False)] == [
        (each.name, list(each.scopes), each.no_scopes) for each in spec.tools
    ]
    assert ["support.writer", "support.reader", "support.writer"] == [each.agent for each in spec.delegates]
    assert (2, "Writes.") == (spec.delegates[2].budget.turns, spec.delegates[2].description)
    assert (60, 0, 0.0, True, False) == (
        spec.budget.active_time.seconds,
        spec.output_repairs_max,
        spec.settings.temperature,
        spec.settings.HasField("temperature"),
        spec.settings.HasField("top_p"),
    )
    assert '"refund"' in declared[2].output_schema_json
    assert [capability_pb2.HAZARD_MESSAGE] == list(declared[2].contract.hazards)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": "orders.*"}, "tools is a list; write tools=[…]"),
        ({"delegates": "support.writer"}, "delegates is a list"),
        ({"tools": [len]}, "is no tool; say its name"),
        ({"delegates": [ToolChoice("a.b")]}, "is no agent; say its name"),
        ({"tools": [ToolChoice("a.b", scopes="x")]}, "scopes is a list of words"),
        ({"budget": Budget(active_time=0)}, "active_time is 0; say a positive span"),
        ({"budget": Budget(turns=2**40)}, "out of range"),
        ({"budget": Budget(turns="5")}, "agent 'support.helper': "),  # type: ignore[arg-type]
        ({"output": type("Opaque", (), {})}, "the output of 'support.helper'"),
        ({"approval": "1 of role:a", "effect_key_ttl": 5}, "effect_key_ttl belongs to effect='idempotent'"),
    ],
)
def test_mistakes_are_told_where_they_are_made(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        placet.App("desk").agent("support.helper", model="fast", **options)
    assert text in str(caught.value)


@pytest.mark.parametrize("names", [("tool", "agent"), ("agent", "tool")])
def test_a_tool_and_an_agent_cannot_have_one_name(names: tuple[str, str]) -> None:
    app = placet.App("desk")
    declare: dict[str, Callable[[], object]] = {
        "tool": lambda: app.tool("support.helper", "read")(lambda: None),
        "agent": lambda: app.agent("support.helper", model="fast"),
    }
    declare[names[0]]()
    with pytest.raises(DeclarationError, match="declared twice"):
        declare[names[1]]()
