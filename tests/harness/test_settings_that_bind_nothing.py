"""What an agent says about how its model is asked reaches the model under the name that its wire has for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from placet.testing.model_servers import Say
from placet_server.harness.provider.answer import FINAL_OUTPUT, Pins, TurnFailure
from placet_server.harness.provider.catalogue import Kind
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import TurnProblem
from tests.harness.conversation import ALL_WIRES, LOOKUP, REFUND, models_of, nobody

BOUNDS = {
    Kind.OPENAI: ("openai", "max_completion_tokens"),
    Kind.OPENAI_COMPATIBLE: ("openai", "max_tokens"),
    Kind.OLLAMA: ("openai", "max_tokens"),
    Kind.OPENAI_RESPONSES: ("openai_responses", "max_output_tokens"),
    Kind.ANTHROPIC: ("anthropic", "max_tokens"),
}
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'


async def body_of(
    wire: str, settings: ModelSettings, pins: Pins | None = None, **entry: Any
) -> dict[str, Any]:
    from placet_server.harness.provider import wire as messages

    async with ALL_WIRES[wire]([Say("ok")]) as server:
        models = models_of(server, **entry)
        await models.provider("test", "acme").turn(
            [messages.request_text(["hi"])], pins or Pins(), settings, on_delta=nobody, timeout_seconds=20
        )
        await models.close()
        body: dict[str, Any] = server.requests[0].json
    return body


@pytest.mark.parametrize("kind", BOUNDS)
async def test_the_longest_answer_is_bounded_by_agent_and_operator(kind: Kind) -> None:
    wire, name = BOUNDS[kind]
    assert 100 == (await body_of(wire, ModelSettings(max_tokens=100), kind=kind))[name]
    assert 50 == (await body_of(wire, ModelSettings(max_tokens=100), kind=kind, max_tokens=50))[name]


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_what_is_not_said_is_not_sent_and_what_is_said_is(wire: str) -> None:
    silent = await body_of(wire, ModelSettings())
    assert not {"temperature", "top_p", "parallel_tool_calls", "thinking", "reasoning"} & set(silent)
    said = await body_of(wire, ModelSettings(temperature=0.5))
    assert 0.5 == said["temperature"]


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_tools_are_told_as_their_contracts_have_them_and_in_one_order(wire: str) -> None:
    one = await body_of(wire, ModelSettings(), Pins(tools=(LOOKUP, REFUND)))
    other = await body_of(wire, ModelSettings(), Pins(tools=(REFUND, LOOKUP)))
    assert one["tools"] == other["tools"]
    texts = json.dumps(one["tools"])
    assert json.dumps(json.loads(LOOKUP.input_schema)) in texts
    assert json.dumps(json.loads(REFUND.input_schema)) in texts


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_a_run_with_an_output_schema_has_to_end_by_its_tool(wire: str) -> None:
    body = await body_of(wire, ModelSettings(), Pins(tools=(LOOKUP,), output_schema=SCHEMA))
    assert FINAL_OUTPUT in json.dumps(body["tools"])
    assert body["tool_choice"] in ("required", {"type": "any"})


async def test_an_effort_that_no_model_has_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(TurnFailure, match="minimal") as failure:
        await body_of("openai", ModelSettings(reasoning_effort="silly"))
    assert (TurnProblem.INVALID, False) == (failure.value.category, failure.value.charged)


@pytest.mark.parametrize(("effort", "tokens"), [("low", 2048), ("medium", 2048), ("max", 2048)])
async def test_thinking_leaves_room_for_the_answer(effort: str, tokens: int) -> None:
    body = await body_of("anthropic", ModelSettings(reasoning_effort=effort), model="claude-haiku-4-5")
    assert (4096, tokens) == (body["max_tokens"], body["thinking"]["budget_tokens"])


async def test_an_answer_that_is_too_short_for_thinking_has_none() -> None:
    settings = ModelSettings(reasoning_effort="high", max_tokens=1500)
    assert "thinking" not in await body_of("anthropic", settings, model="claude-haiku-4-5")
