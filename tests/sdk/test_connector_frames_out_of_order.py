"""What a connector says, in which order, and what it waits for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest

import placet
from placet.v1 import action_pb2, error_reason_pb2, outcome_pb2
from placet.v1 import connector_service_pb2 as pb
from tests.sdk.dialler import Dialler, Stream, dialled, until
from tests.sdk.errand import Errands


async def _answer(dialler: Dialler, errands: Errands, run: Any) -> Any:
    errands.runs["it"] = run
    stream = await dialler.begun("desk.run", {"what": "it"})
    return await stream.settled()


async def test_describe_says_what_is_served_and_where_it_is_not_said() -> None:
    errands = Errands()
    async with dialled(errands.app, concurrency_max=7) as dialler:
        described = await dialler.stub.Describe(pb.DescribeRequest())
    assert "desk" == described.manifest.name
    assert {tool.name for tool in errands.app.tools} == {c.name for c in described.manifest.capabilities}
    assert (dialler.connector.boot_id, 7, False) == (
        described.boot_id,
        described.concurrency_max,
        described.draining,
    )
    assert ["desk.pay@1"] == list(described.lookups)
    assert not described.manifest.HasField("local")


async def test_no_code_is_entered_before_placet_says_proceed() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.invoke(dialler.start("desk.pay", {"amount": "1"}))
        assert "accepted" == (await stream.next())[0]
        await dialler.stub.Describe(pb.DescribeRequest())
        assert not errands.entered.is_set()
        await stream.send(proceed=pb.InvokeProceed())
        assert ("effect_mark", pb.EffectMark()) == await stream.next()
        assert errands.entered.is_set()
        stream.lose()


@pytest.mark.parametrize("how", ["lost", "cancelled"])
async def test_an_attempt_that_was_not_to_proceed_never_was(how: str) -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.tell", {"text": "x"})
        stream = await dialler.invoke(start)
        await stream.next()
        if how == "lost":
            stream.lose()
        else:
            await stream.send(cancel=pb.InvokeCancel(cause="CANCELLED_BY_CALLER"))
            assert ("end", grpc.StatusCode.ABORTED) == await stream.next()
        await until(lambda: not dialler.connector.table.running)
        errands.thread_open.set()
        again = await dialler.invoke(start)
        await again.proceed()
        assert '"x"' == (await again.settled()).output_json
    assert 1 == errands.done


async def test_the_provider_is_touched_once_the_mark_is_acknowledged() -> None:
    errands = Errands()
    errands.open.set()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.pay", {"amount": "1"})
        assert "effect_mark" == (await stream.next())[0]
        # Neither is an answer to the mark.
        await stream.send(checkpoint_ack=pb.CheckpointAck(number=1))
        await stream.send(settle_ack=pb.SettleAck())
        await dialler.stub.Describe(pb.DescribeRequest())
        assert 0 == errands.done
        await stream.send(effect_ack=pb.EffectAck())
        answer = await stream.settled()
    context = errands.contexts[0]
    assert {"paid": "1", "key": context.effect_key} == json.loads(answer.output_json)


async def test_checkpoints_count_from_one_and_are_durable_before_they_return() -> None:
    errands = Errands()
    returned: list[str] = []

    async def run(context: placet.Context) -> str:
        for operation in ("a", "b"):
            await context.checkpoint(operation, {"page": operation})
            returned.append(operation)
        return await context.effect()

    errands.runs["it"] = run
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.run", {"what": "it"})
        for number, operation in enumerate(("a", "b"), 1):
            name, frame = await stream.next()
            assert ("checkpoint", number, operation) == (name, frame.number, frame.provider_operation)
            assert {"page": operation} == json.loads(frame.provider_cursor_json)
            assert number - 1 == len(returned)
            # Of another, or again: says nothing.
            await stream.send(checkpoint_ack=pb.CheckpointAck(number=number + 7))
            await stream.send(checkpoint_ack=pb.CheckpointAck(number=number))
            await stream.send(checkpoint_ack=pb.CheckpointAck(number=number))
        # An effect that is not marked needs no mark.
        assert errands.contexts[0].effect_key == json.loads((await stream.settled()).output_json)


async def test_chunks_and_progress_share_their_numbers_and_come_before_the_answer() -> None:
    errands = Errands()

    async def run(context: placet.Context) -> None:
        await context.chunk("text")
        await context.chunk(b"\x00")
        await context.chunk({"json": [1]})
        for index in range(30):
            await context.progress(f"step {index}", index / 30)

    errands.runs["it"] = run
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.run", {"what": "it"})
        frames = [await stream.next() for _ in range(33)]
        assert ["chunk"] * 3 + ["progress"] * 30 == [name for name, _ in frames]
        assert list(range(1, 34)) == [frame.number for _, frame in frames]
        said = [(frame.text, frame.binary, frame.json) for _, frame in frames[:3]]
        assert [("text", b"", ""), ("", b"\x00", ""), ("", b"", '{"json":[1]}')] == said
        assert "null" == (await stream.settled()).output_json


async def test_a_handler_learns_what_placet_established() -> None:
    errands = Errands()
    errands.open.set()
    caller = action_pb2.Caller(
        tenant="acme", subject="bot", kind=action_pb2.CALLER_KIND_AGENT, roles=["clerk"], scopes=["pay"]
    )
    async with dialled(errands.app) as dialler:
        start = dialler.start(
            "desk.read",
            {"text": "x"},
            attempt=3,
            caller=caller,
            credential_handle="vault:1",
            provider_operation="op",
            provider_cursor_json='{"page":2}',
            trace_context={"traceparent": "00-1"},
        )
        stream = await dialler.invoke(start)
        await stream.proceed()
        await stream.settled()
    context = errands.contexts[0]
    assert (start.action_id, "desk.read", "1", 3) == (
        context.action_id,
        context.capability,
        context.version,
        context.attempt,
    )
    assert (
        placet.CallerInfo(tenant="acme", subject="bot", kind="agent", roles=("clerk",), scopes=("pay",))
        == context.caller
    )
    assert ("vault:1", "op", {"page": 2}) == (
        context.credential_handle,
        context.provider_operation,
        context.provider_cursor,
    )
    assert {"traceparent": "00-1"} == context.trace
    assert 0 < context.time_left() <= 30


async def test_a_declared_failure_is_told_as_declared() -> None:
    async def decline(_: placet.Context) -> None:
        raise placet.Failure(
            "card\x00declined", "no \ud800", category="rate_limited", effect="not_done", retry_delay=1.5
        )

    errands = Errands()
    async with dialled(errands.app) as dialler:
        failure = await _answer(dialler, errands, decline)
    assert ("card\ufffddeclined", "no \ufffd") == (failure.code, failure.message)
    assert outcome_pb2.FAILURE_CATEGORY_RATE_LIMITED == failure.category
    assert outcome_pb2.EFFECT_STATE_NOT_DONE == failure.effect
    assert 1.5 == failure.retry_delay.ToTimedelta().total_seconds()


async def _raise(error: BaseException) -> None:
    raise error


class _Odd(placet.Failure):
    def __init__(self) -> None:
        super().__init__("odd")
        self.effect = "perhaps"  # type: ignore[assignment]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        placet.Cancelled(),
        GeneratorExit(),
        StopAsyncIteration(),
        _Odd(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_nobody_declared_is_unknown_and_its_text_stays_here(error: BaseException) -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        failure = await _answer(dialler, errands, lambda _: _raise(error))
    assert "undeclared_error" == failure.code
    assert outcome_pb2.EFFECT_STATE_UNKNOWN == failure.effect
    assert "secret" not in failure.message


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "output_not_json"),
        ("\ud800", "output_not_json"),
        (object(), "output_not_json"),
        ("x" * (3 * 1024 * 1024), "output_too_large"),
    ],
    ids=["nan", "surrogate", "object", "large"],
)
async def test_an_output_that_cannot_be_sent_fails_though_the_effect_is_done(value: Any, code: str) -> None:
    async def run(_: placet.Context) -> Any:
        return value

    errands = Errands()
    async with dialled(errands.app) as dialler:
        failure = await _answer(dialler, errands, run)
    assert (code, outcome_pb2.EFFECT_STATE_DONE) == (failure.code, failure.effect)


async def test_an_output_that_leads_to_itself_or_too_deep_ends_nothing_else() -> None:
    async def loop(_: placet.Context) -> Any:
        itself: list[Any] = []
        itself.append(itself)
        return itself

    errands = Errands()
    async with dialled(errands.app) as dialler:
        assert "output_not_json" == (await _answer(dialler, errands, loop)).code


async def test_what_cannot_be_said_raises_where_it_is_said() -> None:
    caught: list[type[BaseException]] = []

    async def run(context: placet.Context) -> None:
        for said in (
            context.chunk("x" * (256 * 1024 + 1)),
            context.chunk(float("inf")),
            context.progress("", 1.5),
            context.checkpoint(""),
            context.checkpoint("x" * 257),
            context.checkpoint("op", {"cursor": "x" * 70_000}),
        ):
            try:
                await said
            except ValueError as error:
                caught.append(type(error))

    errands = Errands()
    async with dialled(errands.app) as dialler:
        assert "null" == (await _answer(dialler, errands, run)).output_json
    assert 6 == len(caught)


async def test_a_task_that_a_handler_left_behind_can_say_no_more() -> None:
    left: list[placet.Context] = []

    async def run(context: placet.Context) -> None:
        left.append(context)

    errands = Errands()
    async with dialled(errands.app) as dialler:
        await _answer(dialler, errands, run)
        for late in (left[0].chunk("x"), left[0].checkpoint("x"), left[0].effect(), left[0].progress("x")):
            with pytest.raises(placet.Cancelled):
                await late


async def test_the_first_frame_is_a_start() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = Stream(dialler.stub.Invoke())
        await stream.send(proceed=pb.InvokeProceed())
        assert ("end", grpc.StatusCode.INVALID_ARGUMENT) == await stream.next()


async def test_a_second_start_and_an_empty_frame_on_a_stream_change_nothing() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.read", {"text": "first"})
        await stream.send(start=dialler.start("desk.read", {"text": "second"}))
        await stream.send()
        errands.open.set()
        assert '"first"' == (await stream.settled()).output_json
    assert 1 == errands.done


async def test_a_dialler_that_only_listens_gets_its_answer() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.read", {"text": "x"})
        await stream.call.done_writing()
        errands.open.set()
        assert ["result", grpc.StatusCode.OK] == await stream.names()


async def test_a_child_is_called_and_its_end_comes_back_by_number() -> None:
    async def run(context: placet.Context) -> Any:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(context.call("one", "pay.charge", {"n": 1}, version="2", timeout=1.5))
            two = group.create_task(context.call("two", "pay.charge", {"n": 2}))
        return [one.result(), two.result()]

    errands = Errands()
    errands.runs["it"] = run
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.run", {"what": "it"})
        frames = [await stream.next(), await stream.next()]
        assert [("child_call", 1), ("child_call", 2)] == [(name, frame.number) for name, frame in frames]
        first = frames[0][1]
        assert ("one", "pay.charge", "2", '{"n":1}') == (
            first.step,
            first.capability,
            first.version,
            first.input_json,
        )
        assert 1.5 == first.timeout.ToTimedelta().total_seconds()
        assert not frames[1][1].HasField("timeout")
        for number in (2, 1, 7):
            await stream.send(
                child_result=pb.ChildResult(number=number, action_id="a", output_json=f"{number}")
            )
        assert "[1,2]" == (await stream.settled()).output_json


@pytest.mark.parametrize(
    ("effect", "attempt", "certain"),
    [
        ("NOT_DONE", 1, True),
        ("UNSPECIFIED", 1, True),
        ("NOT_DONE", 2, False),
        ("UNKNOWN", 1, False),
        ("DONE", 1, False),
    ],
)
async def test_a_child_that_fails_is_told_and_fails_who_lets_it_pass(
    effect: str, attempt: int, certain: bool
) -> None:
    app, told = placet.App("desk"), []

    @app.tool("desk.order", "unsafe", effect_marked=True)
    def order(context: placet.SyncContext) -> None:
        try:
            context.call("pay", "pay.charge")
        except placet.CallFailed as failed:
            told.append(failed.outcome)
            raise

    outcome = outcome_pb2.Outcome(
        kind=outcome_pb2.OUTCOME_KIND_FAILED,
        reason=error_reason_pb2.ERROR_REASON_HANDLER_FAILED,
        failure_code="card_declined",
        effect=outcome_pb2.EffectState.Value(f"EFFECT_STATE_{effect}"),
    )
    async with dialled(app) as dialler:
        stream = await dialler.begun("desk.order", attempt=attempt)
        name, frame = await stream.next()
        assert ("child_call", "null") == (name, frame.input_json)
        await stream.send(child_result=pb.ChildResult(number=1, action_id="a", outcome=outcome))
        failure = await stream.settled()
    known = outcome_pb2.EFFECT_STATE_NOT_DONE if certain else outcome_pb2.EFFECT_STATE_UNKNOWN
    assert ("call_failed", known) == (failure.code, failure.effect)
    assert ("failed", "HANDLER_FAILED", "a", "card_declined") == (
        told[0].kind,
        told[0].reason,
        told[0].action_id,
        told[0].failure_code,
    )
