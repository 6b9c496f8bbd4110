"""A provider whose JSON has members of other types than they should be, which the libraries pass on as they came: what
is kept can be read back, or there is no answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from placet.testing.model_servers import ModelServer, Say, call
from placet_server.harness.plan import plan
from placet_server.harness.provider.answer import TurnFailure
from placet_server.model.entry import TurnProblem
from placet_server.model.entry_text import entry_of
from placet_server.model.usage import Counters, Usage
from tests.harness.conversation import ALL_WIRES, OPENED, asked, models_of

SAID = Say("Hello", call("orders-lookup", order="A-1"), reasoning="hm", cached=3)
HUGE = str(2**64)
CASES = [
    *(("openai", '"id": "chatcmpl-1"', f'"id": {value}') for value in ("5", "null", "[]")),
    ("openai", '"model": "model-x"', '"model": 7'),
    ("openai", '"content": "Hello"', '"content": 5'),
    ("openai", '"id": "call_1_1"', '"id": 5'),
    ("openai", '"name": "orders-lookup"', '"name": 1.5'),
    ("openai", '"arguments": "{', '"arguments": {}, "x": "'),
    ("openai", '"finish_reason": "tool_calls"', '"finish_reason": 5'),
    *(("openai", '"prompt_tokens": 100', f'"prompt_tokens": {n}') for n in ("1.5", "-1", HUGE, '"9"')),
    *(("openai", '"cached_tokens": 3', f'"cached_tokens": {n}') for n in ("100.5", HUGE, "true")),
    *(("anthropic", '"thinking": "hm"', f'"thinking": {value}') for value in ("5", "null")),
    ("anthropic", '"signature": "c2', '"signature": 5, "x": "'),
    *(("anthropic", '"text": "Hello"', f'"text": {value}') for value in ("5", "null")),
    ("anthropic", '"id": "call_1_1"', '"id": 5'),
    ("anthropic", '"name": "orders-lookup"', '"name": null'),
    ("anthropic", '"model": "model-x"', '"model": 7'),
    *(("anthropic", '"output_tokens": 20', f'"output_tokens": {n}') for n in ("1.5", "-1", HUGE)),
    ("openai_responses", '"text": "Hello"', '"text": 5'),
    ("openai_responses", '"model": "model-x"', '"model": 7'),
    ("openai_responses", '"call_id": "call_1_1"', '"call_id": 5'),
]


def odd(wire: str, right: str, wrong: str) -> ModelServer:
    base: Any = ALL_WIRES[wire]

    class Odd(base):  # type: ignore[misc]
        swapped = 0

        def _events(self, said: Say, body: Any, turn: int) -> Iterator[bytes]:
            for event in super()._events(said, body, turn):
                self.swapped += right.encode() in event
                yield event.replace(right.encode(), wrong.encode())

    server: ModelServer = Odd([SAID])
    return server


@pytest.mark.parametrize(("wire", "right", "wrong"), CASES)
async def test_what_is_kept_of_an_answer_can_be_read_back(wire: str, right: str, wrong: str) -> None:
    from placet_server.harness.provider import wire as messages

    async with odd(wire, right, wrong) as server:
        models = models_of(server)
        answer, failure = None, None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                answer = await asked(models.provider("test", "acme"), [messages.request_text(["look"])])
            except TurnFailure as raised:
                failure = raised
        assert [] == [str(each.message) for each in warned if "Pydantic" in str(each.message)]
        await models.close()
        assert server.swapped  # type: ignore[attr-defined]
    if answer is None:
        assert failure is not None
        assert failure.charged
        assert failure.category in (TurnProblem.INVALID, TurnProblem.TRUNCATED)
    else:
        assert answer.text == messages.dump(messages.load([answer.text])[0])
        entry_of(plan(answer, OPENED, turn=1, counters=Counters(), equal={}))


async def test_whole_numbers_with_a_point_are_counted() -> None:
    from placet_server.harness.provider import wire

    async with odd("openai", '"prompt_tokens": 100', '"prompt_tokens": 100.0') as server:
        models = models_of(server)
        answer = await asked(models.provider("test", "acme"), [wire.request_text(["look"])])
        await models.close()
    assert Usage(input_tokens=100, output_tokens=20, cached_tokens=3) == answer.usage


async def test_usage_that_is_told_in_every_event_is_not_added_up() -> None:
    """As some servers do whoever asks, and others with `continuous_usage_stats`."""
    from placet_server.harness.provider import wire

    usage = '"usage": {"prompt_tokens": 100, "completion_tokens": 20}, "choices": [{'
    async with odd("openai", '"choices": [{', usage) as server:
        models = models_of(server)
        answer = await asked(models.provider("test", "acme"), [wire.request_text(["look"])])
        await models.close()
    assert Usage(input_tokens=100, output_tokens=20, cached_tokens=3) == answer.usage


@pytest.mark.parametrize("finish", ["eos", "STOP", "tool_use"])
async def test_a_reason_that_nobody_knows_ends_a_whole_answer(finish: str) -> None:
    from placet_server.harness.provider import wire

    async with odd("openai", '"finish_reason": "tool_calls"', f'"finish_reason": "{finish}"') as server:
        models = models_of(server)
        answer = await asked(models.provider("test", "acme"), [wire.request_text(["look"])])
        await models.close()
    assert (finish, False) == (answer.finish, answer.cut_off)
