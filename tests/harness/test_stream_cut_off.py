"""A stream that ends before the answer does looks like a whole one to the library: nothing of it is ever acted on."""

from __future__ import annotations

import asyncio

import pytest

from placet.testing.model_servers import (
    Call,
    Drop,
    FailInStream,
    Say,
    Stall,
    Truncate,
    call,
)
from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.harness.plan import CUT_OFF, plan
from placet_server.harness.provider.answer import Answer, Delta, Pins, TurnFailure
from placet_server.harness.transcript import Stage
from placet_server.model.entry import TurnProblem
from placet_server.model.usage import Counters
from tests.harness.conversation import (
    ALL_WIRES,
    OPENED,
    SETTINGS,
    WIRES,
    Journaled,
    asked,
    ended,
    models_of,
    nobody,
)

SAID = Say("I look it up.", call("orders-lookup", order="A-1001"), reasoning="which one?")


def prompt() -> list[str]:
    from placet_server.harness.provider import wire

    return [wire.request_text(["look at A-1001"])]


def length_of(wire: str) -> int:
    """Up to where the answer says that it has ended."""
    server = ALL_WIRES[wire]([SAID])
    events = list(server._events(SAID, {"model": "model-x"}, 1))
    last = {
        "openai": b'"finish_reason": "tool_calls"',
        "anthropic": b"message_delta",
        "openai_responses": b"response.completed",
    }[wire]
    return sum(len(event) for event in events[: next(n for n, e in enumerate(events) if last in e)])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_an_answer_cut_off_anywhere_is_no_answer(wire: str, clean: bool) -> None:
    length = length_of(wire)
    ends = sorted({1, *range(120, length, 300), length - 1, length})
    async with ALL_WIRES[wire]([*(Truncate(end, clean=clean) for end in ends), SAID]) as server:
        models = models_of(server)
        provider = models.provider("test", "acme")
        for end in ends:
            with pytest.raises(TurnFailure) as failure:
                await asked(provider, prompt())
            assert failure.value.category.is_temporary, (end, failure.value)
            assert failure.value.charged
        answer = await asked(provider, prompt())
        await models.close()
        assert len(ends) + 1 == len(server.requests)
    assert [("call_1_1", "orders-lookup", '{"order": "A-1001"}')] == [tuple(each) for each in answer.calls]


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_calls_of_a_cut_off_answer_are_never_made_and_the_turn_is_asked_again(wire: str) -> None:
    made: list[str] = []

    def tool(called: StepCall) -> ChildEnd:
        made.append(called.step)
        return ended()

    async with ALL_WIRES[wire]([Truncate(length_of(wire)), Drop(), SAID, Say("Done.")]) as server:
        models = models_of(server)
        run = Journaled(models, tool=tool, dies=True)
        await run.run("look at A-1001")
        await models.close()
        assert [3, 1] == [len(server.requests_of(1)), len(server.requests_of(2))]
        assert 1 == len({request.body for request in server.requests_of(1)})
    assert ["turn/1/call/1"] == made
    assert Stage.DONE is run.state.stage


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_within_a_stream_is_a_failure_of_the_turn(wire: str) -> None:
    kind = {"openai": "server_error", "anthropic": "overloaded_error"}[wire]
    async with WIRES[wire]([FailInStream(kind), SAID]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), prompt())
        await models.close()
    assert failure.value.category.is_temporary
    assert failure.value.charged


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_falls_silent_is_a_timeout(wire: str) -> None:
    async with WIRES[wire]([Stall(60, after_bytes=400), SAID]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), prompt(), seconds=0.2)
        await models.close()
    assert (TurnProblem.TIMEOUT, True) == (failure.value.category, failure.value.charged)


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_said_before_a_silence_is_told_during_it(wire: str) -> None:
    """The first piece at once, and the rest without anything that follows it; then the one who asked goes away."""
    server = WIRES[wire]([Stall(60, after_bytes=length_of(wire)), SAID])
    told: list[Delta] = []
    is_told = asyncio.Event()

    async def hear(delta: Delta) -> None:
        told.append(delta)
        if "".join(each.text for each in told if each.kind == "text") == SAID.text:
            is_told.set()

    async with server:
        models = models_of(server)
        turn = models.provider("test", "acme").turn(
            prompt(), Pins(tools=OPENED.tools), SETTINGS, on_delta=hear, timeout_seconds=50
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(turn)
            await is_told.wait()
            task.cancel()
        await models.close()
    assert task.cancelled()
    assert SAID.reasoning == "".join(each.text for each in told if each.kind == "reasoning")


async def test_what_the_listener_raises_is_no_failure_of_the_turn() -> None:
    class LeaseLost(Exception):
        pass

    async def refuse(_: Delta) -> None:
        raise LeaseLost

    async with WIRES["openai"]([SAID]) as server:
        models = models_of(server)
        with pytest.raises(LeaseLost):
            await models.provider("test", "acme").turn(
                prompt(), Pins(), SETTINGS, on_delta=refuse, timeout_seconds=5
            )
        await models.close()


@pytest.mark.parametrize(("wire", "finish"), [("openai", "length"), ("anthropic", "max_tokens")])
@pytest.mark.parametrize("arguments", ["", '{"order": "A-10', '{"order": "A-1001"}'])
async def test_the_last_call_of_an_answer_that_met_a_limit_is_not_made(
    wire: str, finish: str, arguments: str
) -> None:
    said = Say("", call("orders-lookup", order="A-1"), Call("orders-lookup", arguments), finish=finish)
    async with WIRES[wire]([said]) as server:
        models = models_of(server)
        answer = await asked(models.provider("test", "acme"), prompt())
        await models.close()
    decided = plan(answer, OPENED, turn=1, counters=Counters(), equal={})
    assert ["turn/1/call/1", ""] == [record.step for record in decided.calls]
    assert CUT_OFF == decided.calls[1].refusal


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_with_nothing_in_it_is_cut_off_and_one_with_thoughts_alone_is_asked_for_words(
    wire: str,
) -> None:
    async with WIRES[wire]([Say("")]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), prompt())
        await models.close()
    assert TurnProblem.TRUNCATED is failure.value.category
    decided = plan(Answer(text="{}", finish="stop"), OPENED, turn=1, counters=Counters(), equal={})
    assert (None, True) == (decided.output, decided.invalid)
    assert decided.repair


@pytest.mark.parametrize(("wire", "finish"), [("openai", "content_filter"), ("anthropic", "refusal")])
async def test_an_answer_that_a_filter_took_is_refused_and_what_it_left_of_one_is_kept(
    wire: str, finish: str
) -> None:
    call_too = Say("half of", call("orders-lookup", order="A-1"), finish=finish)
    async with WIRES[wire]({"taken": [Say("", finish=finish)], "model-x": [call_too]}) as server:
        taken, left = models_of(server, model="taken"), models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(taken.provider("test", "acme"), prompt())
        answer = await asked(left.provider("test", "acme"), prompt())
        await taken.close()
        await left.close()
    assert (TurnProblem.REFUSED, True) == (failure.value.category, failure.value.charged)
    assert (("half of",), finish, True) == (answer.said, answer.finish, answer.cut_off)


async def test_an_answer_that_is_no_unicode_is_invalid() -> None:
    async with WIRES["openai"]([Say("half \ud83d of it")]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await models.provider("test", "acme").turn(
                prompt(), Pins(), SETTINGS, on_delta=nobody, timeout_seconds=5
            )
        await models.close()
    assert TurnProblem.INVALID is failure.value.category
