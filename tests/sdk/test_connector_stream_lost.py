"""Attempts outlive their streams: asked twice they answer twice, asked later they tell what they came to."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

import placet
from placet.connector import attempt_table
from placet.connector.attempt_table import AttemptTable, Key
from placet.connector.frame import result
from placet.connector.refusal import Refused
from placet.v1 import connector_service_pb2 as pb
from tests.sdk.dialler import ANSWER_SECONDS, Dialler, dialled, until
from tests.sdk.errand import Errands


async def _idle(dialler: Dialler) -> None:
    """Whatever ran has ended."""
    await until(lambda: not dialler.connector.table.running)


async def _unheard(dialler: Dialler) -> None:
    """The connector knows that the streams are gone."""
    await until(lambda: not any(attempt._outlets for attempt in dialler.connector.table.running))


async def test_a_second_start_joins_and_both_get_one_answer() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.pay", {"amount": "1"})
        first = await dialler.invoke(start)
        await first.proceed()
        assert "effect_mark" == (await first.next())[0]
        second = await dialler.invoke(start)
        await second.proceed()
        # What is asked already is asked there too, and an answer on either counts.
        assert "effect_mark" == (await second.next())[0]
        await second.send(effect_ack=pb.EffectAck())
        await first.send(effect_ack=pb.EffectAck())
        errands.open.set()
        (_, one), (_, other) = await first.next(), await second.next()
        assert "1" == json.loads(one.output_json)["paid"]
        assert one == other
        third = await dialler.invoke(start)
        await third.proceed()
        assert one == await third.settled()
    assert 1 == errands.done


async def test_what_is_settled_is_not_done_again() -> None:
    errands = Errands()
    errands.open.set()
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.read", {"text": "x"})
        stream = await dialler.invoke(start)
        await stream.proceed()
        await stream.settled()
        assert grpc.StatusCode.ALREADY_EXISTS == await dialler.refused(start)
        assert "not_known" == (await dialler.look_up(start)).WhichOneof("finding")
    assert 1 == errands.done


@pytest.mark.parametrize("ended", [False, True])
async def test_another_input_under_a_known_attempt_is_refused(ended: bool) -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.read", {"text": "x"})
        stream = await dialler.invoke(start)
        await stream.proceed()
        if ended:
            errands.open.set()
            await stream.next()
        for other in (
            dialler.start("desk.read", {"text": "y"}, action_id=start.action_id),
            dialler.start("desk.tell", {"text": "x"}, action_id=start.action_id),
        ):
            assert grpc.StatusCode.ALREADY_EXISTS == await dialler.refused(other)
        stream.lose()


async def test_a_lost_stream_stops_only_what_reads() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        (await dialler.begun("desk.read", {"text": "x"})).lose()
        await _idle(dialler)
        errands.entered.clear()
        start = dialler.start("desk.tell", {"text": "x"})
        stream = await dialler.invoke(start)
        await stream.proceed()
        await errands.entered.wait()
        stream.lose()
        await _unheard(dialler)
        running = await dialler.look_up(start)
        assert ("still_running", False) == (running.WhichOneof("finding"), running.not_running)
        errands.thread_open.set()
        await _idle(dialler)
        found = await dialler.look_up(start)
        assert ('"x"', True) == (found.committed.output_json, found.not_running)
        again = await dialler.invoke(start)
        await again.proceed()
        assert '"x"' == (await again.settled()).output_json
    assert 1 == errands.done


async def test_who_waits_to_touch_the_provider_stops_with_the_stream() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.pay", {"amount": "1"})
        stream = await dialler.invoke(start)
        await stream.proceed()
        assert "effect_mark" == (await stream.next())[0]
        stream.lose()
        await _idle(dialler)
        found = await dialler.look_up(start)
    assert ("not_committed", True, True) == (
        found.WhichOneof("finding"),
        found.not_committed.retryable,
        found.not_running,
    )
    assert 0 == errands.done


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (placet.Committed({"paid": "1"}), {"committed": {"output_json": '{"paid":"1"}'}}),
        (
            placet.NotCommitted(retryable=True, code="gone"),
            {"not_committed": {"retryable": True, "code": "gone"}},
        ),
        (placet.NotKnown("later"), {"not_known": {"message": "later"}}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_this_process_does_not_know_the_author_is_asked(
    answer: Any, finding: dict[str, Any]
) -> None:
    errands = Errands()
    errands.found = answer
    async with dialled(errands.app) as dialler:
        start = dialler.start("desk.pay", {"amount": "1", "more": 1}, attempt=2)
        found = await dialler.look_up(start, provider_operation="op", provider_cursor_json='{"page":1}')
    # It never ran here, so nothing is said of whether it runs elsewhere.
    assert pb.LookupResponse(**finding) == found
    context = errands.contexts[0]
    assert ("op", {"page": 1}, 2, start.effect_key) == (
        context.provider_operation,
        context.provider_cursor,
        context.attempt,
        context.effect_key,
    )
    # What the dialler gave it, which grpc tells from its own clock.
    assert 0 < context.time_left() < ANSWER_SECONDS + 1


@pytest.mark.parametrize(
    "answer", [None, ValueError("secret"), SystemExit("secret"), placet.Committed({1, object()})]
)
async def test_a_lookup_that_fails_or_answers_badly_does_not_know(answer: Any) -> None:
    errands = Errands()
    errands.found = answer
    async with dialled(errands.app) as dialler:
        found = await dialler.look_up(dialler.start("desk.pay", {"amount": "1"}))
    assert "not_known" == found.WhichOneof("finding")
    assert "secret" not in found.not_known.message


async def test_a_failure_that_may_have_had_its_effect_is_looked_up() -> None:
    async def fail(context: placet.Context) -> None:
        raise placet.Failure("timeout", category="temporary", effect=effects.pop())

    errands = Errands()
    errands.runs["it"] = fail
    effects: list[Any] = ["not_done", "unknown", "done", "not_done"]
    kinds = []
    async with dialled(errands.app) as dialler:
        for attempt in (1, 2, 3, 4):
            start = dialler.start(
                "desk.run", {"what": "it"}, action_id="0199b0c0-0000-7000-8000-000000000001", attempt=attempt
            )
            stream = await dialler.invoke(start)
            await stream.proceed()
            await stream.next()
            found = await dialler.look_up(start)
            kinds.append((found.WhichOneof("finding"), found.not_running))
    # "Not done" of the last attempt says nothing about those before it.
    assert [("not_committed", True), ("not_known", True), ("not_known", True), ("not_known", True)] == kinds


async def test_while_any_attempt_of_the_action_runs_nothing_is_certain() -> None:
    errands = Errands()
    errands.found = placet.NotCommitted()
    async with dialled(errands.app) as dialler:
        first = dialler.start("desk.tell", {"text": "x"})
        stream = await dialler.invoke(first)
        await stream.proceed()
        later = dialler.start("desk.tell", {"text": "x"}, action_id=first.action_id, attempt=2)
        assert "still_running" == (await dialler.look_up(later)).WhichOneof("finding")
        errands.thread_open.set()
        await stream.next()
        found = await dialler.look_up(later)
        assert ("committed", True) == (found.WhichOneof("finding"), found.not_running)


class _Settled:
    may_have_acted = True


def test_the_table_forgets_the_oldest_that_have_ended_and_nothing_that_runs() -> None:
    now = 0.0
    table = AttemptTable(kept_max=3, kept_seconds=10, kept_bytes_max=1000, clock=lambda: now)
    keys = [Key(f"a{number}", 1) for number in range(6)]
    for key in keys[:5]:
        table.add(key, "work", _Settled())  # type: ignore[arg-type]
    for key in keys[:4]:
        table.end(key, result("x"))
    assert [False, True, True, True, False] == [table.is_over(key) for key in keys[:5]]
    assert table.runs_any_of("a4")
    table.settle(keys[1])
    with pytest.raises(Refused):
        table.find(keys[1], "work")
    now = 11.0
    assert table.find(keys[1], "work") is None
    assert [False] * 4 == [table.is_over(key) for key in keys[:4]]
    assert table.runs_any_of("a4")
    table.add(keys[5], "work", _Settled())  # type: ignore[arg-type]
    table.end(keys[4], result("x" * 600))
    table.end(keys[5], result("y" * 600))
    assert [False, True] == [table.is_over(keys[4]), table.is_over(keys[5])]


def test_the_bounds_of_the_table_are_those_of_the_guide() -> None:
    assert (10_000, 3600.0) == (attempt_table.KEPT_MAX, attempt_table.KEPT_SECONDS)
