"""Replies that are lost, servers that are away, answers that are not Placet's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest

from placet import errors
from placet.client import Client
from placet.v1 import action_pb2
from tests.sdk.conftest import Both
from tests.sdk.support import (
    ACTION_ID,
    Script,
    break_off,
    found,
    hang,
    outcome,
    refuse,
    serving,
    succeed,
    succeeded,
)

Connect = Callable[[str], Both]
Code = grpc.StatusCode


def _keys(script: Script) -> set[str]:
    return {request.invocation.options.idempotency_key for request in script.named("Execute")}


async def test_a_lost_reply_is_asked_for_again_under_the_same_key(connect: Connect) -> None:
    lost = [break_off(code) for code in (Code.UNAVAILABLE, Code.INTERNAL, Code.CANCELLED)]
    script = Script(Execute=[*lost, succeed(attached=True)])
    async with serving(script) as target:
        result = await connect(target).ask("call", "payments.refund", {"order": "A-1001"})
    assert ({"refund": "re_1"}, ACTION_ID, True) == (result.output, result.action_id, result.attached)
    assert 4 == len(script.named("Execute"))
    assert 1 == len(_keys(script))
    assert "" not in _keys(script)


async def test_two_calls_without_a_key_get_two_keys(connect: Connect) -> None:
    script = Script(Execute=[succeed()])
    async with serving(script) as target:
        both = connect(target)
        await both.ask("call", "payments.refund", {})
        await both.ask("call", "payments.refund", {})
    assert 2 == len(_keys(script))


async def test_a_foreign_status_is_not_believed_before_the_key_was_looked_up(connect: Connect) -> None:
    script = Script(Execute=[break_off(Code.PERMISSION_DENIED)], GetAction=[found(succeeded())])
    async with serving(script) as target:
        result = await connect(target).ask("call", "payments.refund", {}, key="k1")
    assert {"refund": "re_1"} == result.output
    asked = script.named("GetAction")[0].key
    assert ("payments.refund", "k1") == (asked.capability, asked.idempotency_key)


async def test_a_foreign_status_whose_key_is_unknown_says_that_the_outcome_is_not_known(
    connect: Connect,
) -> None:
    missing = refuse(Code.NOT_FOUND, "NOT_FOUND", metadata={"kind": "action", "name": "k1"})
    script = Script(Execute=[break_off(Code.PERMISSION_DENIED)], GetAction=[missing])
    async with serving(script) as target:
        with pytest.raises(errors.TransportError) as caught:
            await connect(target).ask("call", "payments.refund", {}, key="k1")
    assert "PERMISSION_DENIED" == caught.value.code
    assert "UNKNOWN" == caught.value.effect
    assert "the outcome is not known" in str(caught.value)
    assert "No action is stored under key 'k1'" in caught.value.__notes__[0]


async def test_a_looked_up_action_that_failed_raises_its_own_ending(connect: Connect) -> None:
    action = action_pb2.Action(
        action_id=ACTION_ID,
        outcome=outcome("AMBIGUOUS", "EFFECT_AMBIGUOUS", advice="AFTER_WAIT", effect="UNKNOWN"),
    )
    script = Script(Execute=[break_off(Code.UNIMPLEMENTED)], GetAction=[found(action)])
    async with serving(script) as target:
        with pytest.raises(errors.AmbiguousError) as caught:
            await connect(target).ask("call", "payments.refund", {})
    assert ("UNKNOWN", "AFTER_WAIT") == (caught.value.effect, caught.value.retry_advice)
    assert caught.value.action_id == ACTION_ID


async def test_a_server_that_never_answers_is_left_at_the_deadline_and_the_key_looked_up(
    connect: Connect,
) -> None:
    running = action_pb2.Action(
        action_id=ACTION_ID,
        state=action_pb2.ACTION_STATE_RUNNING,
        outcome=outcome("PENDING", "WAIT_EXPIRED", advice="AFTER_WAIT", effect="UNKNOWN"),
    )
    script = Script(Execute=[hang], GetAction=[found(running)])
    async with serving(script) as target:
        with pytest.raises(errors.PendingError) as caught:
            await connect(target).ask("call", "payments.refund", {}, timeout=0.5)
        assert caught.value.action_id == ACTION_ID
        await asyncio.wait_for(script.ended.wait(), 5)


async def test_nobody_listening_ends_within_the_deadline(connect: Connect) -> None:
    async with serving(Script()) as target:
        pass
    with pytest.raises(errors.TransportError) as caught:
        await connect(target).ask("call", "payments.refund", {}, timeout=0.5)
    assert caught.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    assert "failed too" in caught.value.__notes__[0]


async def test_advice_same_key_is_followed_and_its_delay_kept(connect: Connect) -> None:
    shed = refuse(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry_delay_seconds=0.1)
    script = Script(Execute=[shed, shed, succeed()])
    async with serving(script) as target:
        both = connect(target)
        began = asyncio.get_running_loop().time()
        await both.ask("call", "payments.refund", {})
        took = asyncio.get_running_loop().time() - began
    assert 3 == len(script.named("Execute"))
    assert took >= 0.2


@pytest.mark.parametrize("advice", ["NEVER", "NEW_KEY", "AFTER_WAIT"])
async def test_any_other_advice_is_the_callers_to_follow(connect: Connect, advice: str) -> None:
    ending = outcome("FAILED", "HANDLER_FAILED", advice=advice)
    script = Script(Execute=[refuse(Code.ABORTED, "HANDLER_FAILED", outcome=ending)])
    async with serving(script) as target:
        with pytest.raises(errors.FailedError) as caught:
            await connect(target).ask("call", "payments.refund", {})
    assert caught.value.retry_advice == advice
    assert 1 == len(script.named("Execute"))


async def test_a_wait_that_ended_at_the_deadline_is_not_begun_again_in_its_last_moments(
    connect: Connect,
) -> None:
    ending = outcome("PENDING", "WAIT_EXPIRED", advice="SAME_KEY")
    script = Script(Execute=[refuse(Code.DEADLINE_EXCEEDED, "WAIT_EXPIRED", outcome=ending)])
    async with serving(script) as target:
        with pytest.raises(errors.PendingError) as caught:
            await connect(target).ask("call", "payments.refund", {}, timeout=0.5)
    assert (ACTION_ID, 1) == (caught.value.action_id, len(script.named("Execute")))


async def test_a_recorded_failure_is_not_repeated_for_ever(connect: Connect) -> None:
    ending = outcome("FAILED", "HANDLER_FAILED", advice="SAME_KEY")
    script = Script(Execute=[refuse(Code.UNAVAILABLE, "HANDLER_FAILED", outcome=ending)])
    async with serving(script) as target:
        with pytest.raises(errors.FailedError):
            await connect(target).ask("call", "payments.refund", {})
    assert 4 == len(script.named("Execute"))


async def test_a_capability_without_keys_is_called_without_one_and_remembered(connect: Connect) -> None:
    no_key = refuse(
        Code.INVALID_ARGUMENT,
        "CONTRACT_VIOLATION",
        metadata={"capability": "orders.lookup", "rule": "idempotency_key_unsupported"},
    )
    script = Script(Execute=[no_key, succeed()])
    async with serving(script) as target:
        both = connect(target)
        await both.ask("call", "orders.lookup", {})
        await both.ask("call", "orders.lookup", {})
    keys = [request.invocation.options.idempotency_key for request in script.named("Execute")]
    assert [True, False, False] == [bool(key) for key in keys]


async def test_a_given_key_is_never_dropped(connect: Connect) -> None:
    no_key = refuse(
        Code.INVALID_ARGUMENT, "CONTRACT_VIOLATION", metadata={"rule": "idempotency_key_unsupported"}
    )
    script = Script(Execute=[no_key])
    async with serving(script) as target:
        with pytest.raises(errors.InvalidRequestError):
            await connect(target).ask("call", "orders.lookup", {}, key="mine")
    assert 1 == len(script.named("Execute"))


async def test_cancelling_the_task_that_awaits_cancels_the_call_at_the_server() -> None:
    script = Script(Execute=[hang])
    async with serving(script) as target:
        both = Both("async", target)
        waiting = asyncio.ensure_future(both.ask("call", "payments.refund", {}))
        await asyncio.wait_for(script.began.wait(), 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(script.ended.wait(), 5)
        await both.close()


async def test_the_token_goes_with_every_call_and_a_function_is_asked_each_time(connect: Connect) -> None:
    seen: list[str | bytes] = []

    async def answer(_: object, context: grpc.aio.ServicerContext[object, object]) -> object:
        seen.append(dict(context.invocation_metadata() or ())["authorization"])
        return await succeed()(None, context)

    tokens = iter(["one", "two"])
    async with serving(Script(Execute=[answer])) as target:
        both = connect(target)
        both.client._token = lambda: next(tokens)
        await both.ask("call", "payments.refund", {})
        await both.ask("call", "payments.refund", {})
    assert ["Bearer one", "Bearer two"] == seen


async def test_what_the_caller_ended_himself_is_not_asked_for_again() -> None:
    script = Script(Execute=[hang])
    async with serving(script) as target:
        client = Client.connect(target, token="t")
        calling = asyncio.ensure_future(asyncio.to_thread(client.call, "payments.refund", {}))
        await asyncio.wait_for(script.began.wait(), 5)
        await asyncio.to_thread(client.close)
        with pytest.raises(errors.TransportError) as caught:
            await calling
    assert ("CANCELLED", 1) == (caught.value.code, len(script.named("Execute")))
