"""An agent's answer that is lost on the way: the same message is sent again under the same key, and then its key is
looked up, so that no run is begun twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import grpc
import pytest

from placet import BinaryPart, JsonPart
from placet.agent import Budget, InlineAgent
from placet.ask_requests import Message, prepare_ask
from placet.requests import CallOptions
from placet.v1 import ask_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.sdk.conftest import Both
from tests.sdk.support import ACTION_ID, Script, answer_with, break_off, found, serving, succeeded

Connect = Callable[[str], Both]
OUTPUT = '{"parts":[{"text":"One."},{"text":"Two."}]}'
ANSWER = pb.AskResponse(
    action=succeeded(OUTPUT), parts=[ask_pb2.MessagePart(text="One."), ask_pb2.MessagePart(text="Two.")]
)


async def test_a_lost_answer_is_asked_for_again_under_the_same_key(connect: Connect) -> None:
    lost = [break_off(code) for code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)]
    script = Script(Ask=[*lost, answer_with(ANSWER)])
    async with serving(script) as target:
        reply = await connect(target).ask("ask", "shop.helper", "Hello.", arguments={"name": "Ann"})
    assert ("One.\n\nTwo.", ("One.", "Two."), ACTION_ID) == (reply.text, reply.parts, reply.action_id)
    requests = script.named("Ask")
    assert (3, 1) == (len(requests), len({request.options.idempotency_key for request in requests}))
    assert ["Hello."] == [part.text for part in requests[0].parts]
    assert {"name": "Ann"} == dict(requests[0].arguments)


@pytest.mark.parametrize(
    ("output", "parts"),
    [(OUTPUT, ("One.", "Two.")), ('{"total":3}', (JsonPart({"total": 3}),))],
)
async def test_an_answer_that_stays_lost_is_looked_up(
    connect: Connect, output: str, parts: tuple[object, ...]
) -> None:
    script = Script(Ask=[break_off(grpc.StatusCode.PERMISSION_DENIED)], GetAction=[found(succeeded(output))])
    async with serving(script) as target:
        reply = await connect(target).ask("ask", "shop.helper", "Hello.", key="k1")
    assert (parts, True) == (reply.parts, reply.attached)
    (asked,) = script.named("GetAction")
    assert ("shop.helper", "k1") == (asked.key.capability, asked.key.idempotency_key)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ("x", [{"text": "x"}]),
        (JsonPart({"a": 1}), [{"json": {"a": 1}}]),
        (
            ["x", BinaryPart(media_type="image/png", data=b"\x00\x01", name="a.png")],
            [{"text": "x"}, {"binary": {"media_type": "image/png", "data": "AAE=", "name": "a.png"}}],
        ),
    ],
)
def test_the_input_of_the_same_message_is_the_same(message: Message, value: object) -> None:
    prepared = prepare_ask("shop.helper", message, None, None, CallOptions(key="k"))
    assert {"parts": value} == json.loads(prepared.invocation.input_json)
    assert len(prepared.parts) == len(prepared.ask_request().parts)


def test_an_agent_in_no_manifest_is_part_of_the_input() -> None:
    agent = InlineAgent(model="fast", tools=["orders.lookup"], max_tokens=9)
    prepared = prepare_ask(agent, "x", None, Budget(turns=2), CallOptions(key="k"))
    said = {"model": "fast", "tools": ["orders.lookup"], "delegates": [], "max_tokens": 9}
    assert {"parts": [{"text": "x"}], "agent": said, "budget": {"turns": 2}} == json.loads(
        prepared.invocation.input_json
    )
    request = prepared.ask_request()
    assert ("placet.agent", "fast", 2) == (request.agent, request.inline_agent.model, request.budget.turns)
    with pytest.raises(TypeError, match="lists of names"):
        prepare_ask(InlineAgent(model="fast", tools="orders.lookup"), "x", None, None, CallOptions())


def test_nothing_is_no_message() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        prepare_ask("shop.helper", [], None, None, CallOptions())
