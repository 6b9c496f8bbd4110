"""What a connector says, and what it is told, of an attempt that goes well or fails honestly."""

from __future__ import annotations

import asyncio
import hashlib
import json

import jwt
import pytest

from placet.v1 import connector_service_pb2 as pb
from placet.v1 import error_reason_pb2, outcome_pb2
from placet_server.core.admission.execute import execute
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import child_id
from placet_server.model.connector_errors import ConnectorUnavailable
from placet_server.model.ending_errors import EffectAmbiguous, HandlerFailed, OutputSchemaViolation
from placet_server.model.lifecycle import ActionState
from tests.connector.rogue import Rogue, Talk
from tests.core.kernels import call_of, dispatch, only_action, output, read, run


async def said(kernel: Kernel, action_id: str) -> list[str]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select body from lane_items where action_id = $1::text::uuid order by number", action_id
        )
    return [row["body"] for row in rows]


async def test_result_is_settled_before_it_is_acknowledged(kernel: Kernel, rogue: Rogue) -> None:
    acked: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.result('{ "n" : 1.0 }')
        heard = await talk.hear()
        acked.set_result((heard, (await only_action(kernel)).state))

    rogue.script = script
    done = await run(kernel, "far.unsafe", {"order": "7"}, "k1")
    assert {"n": 1} == output(done.action)
    assert ("settle_ack", ActionState.SUCCEEDED) == await asyncio.wait_for(acked, 5)


async def test_start_says_what_was_admitted_and_the_token_says_the_same(kernel: Kernel, rogue: Rogue) -> None:
    starts: list[pb.InvokeStart] = []

    async def script(talk: Talk) -> None:
        starts.append(await talk.accept())
        await talk.result()

    rogue.script = script
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    call = call_of("far.unsafe", {"order": "7"}, "k1")._replace(trace=trace)
    done = (await execute(kernel, call)).action
    (start,) = starts
    assert (done.action_id, 1, "far.unsafe", "1") == (
        start.action_id,
        start.attempt,
        start.capability,
        start.version,
    )
    assert '{"order":"7"}' == start.input_json
    assert done.effect_key == start.effect_key
    assert ("acme", "alice") == (start.caller.tenant, start.caller.subject)
    assert rogue.boot_id == start.boot_id
    assert trace == dict(start.trace_context)
    assert 8 < start.time_left.seconds + start.time_left.nanos / 1e9 < 10
    keys = json.loads(kernel.engine.handlers.connectors._signer.key_set)["keys"]  # type: ignore[attr-defined]
    (key,) = keys
    assert key["kid"] == jwt.get_unverified_header(start.invocation_token)["kid"]
    claims = jwt.decode(
        start.invocation_token, jwt.PyJWK(key), ["EdDSA"], audience="placet-connector:far", issuer="test"
    )
    assert hashlib.sha256(start.input_json.encode()).hexdigest() == claims["input_sha256"]
    assert ("invoke", done.action_id, "acme", 1, "far.unsafe", "1") == tuple(
        claims[name] for name in ("use", "sub", "tenant", "attempt", "capability", "version")
    )
    assert 60 <= claims["exp"] - claims["iat"] <= 71


async def test_declared_failure_is_believed_as_that_of_a_handler_here(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.say(
            failure=pb.InvokeFailure(
                code="card_declined",
                message="no\x00",
                effect=outcome_pb2.EFFECT_STATE_NOT_DONE,
                category=outcome_pb2.FAILURE_CATEGORY_CONFLICT,
            )
        )

    rogue.script = script
    with pytest.raises(HandlerFailed) as caught:
        await run(kernel, "far.unsafe", {}, "k1")
    assert ("card_declined", "CONFLICT") == (caught.value.failure_code, caught.value.category)


async def test_what_its_author_did_not_declare_leaves_the_effect_unknown(
    kernel: Kernel, rogue: Rogue
) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.say(failure=pb.InvokeFailure(code="undeclared_error", message="Traceback …"))

    rogue.script = script
    with pytest.raises(EffectAmbiguous) as caught:
        await run(kernel, "far.unsafe", {}, "k1")
    assert "UNDECLARED_ERROR" == caught.value.cause


async def test_marks_and_checkpoints_are_durable_before_they_are_acknowledged(
    kernel: Kernel, rogue: Rogue
) -> None:
    seen: list[tuple[str, bool, str]] = []

    async def script(talk: Talk) -> None:
        await talk.accept()
        checkpoint = pb.Checkpoint(number=1, provider_operation="op-7", provider_cursor_json="[1]")
        for frame in (
            pb.InvokeResponse(effect_mark=pb.EffectMark()),
            pb.InvokeResponse(checkpoint=checkpoint),
        ):
            await talk.send(frame)
            heard = await talk.hear()
            row = await only_action(kernel)
            seen.append((heard, row.effect_begun, row.provider_operation))
        await talk.result()

    rogue.script = script
    await run(kernel, "far.unsafe_marked", {}, "k1")
    assert [("effect_ack", True, ""), ("checkpoint_ack", True, "op-7")] == seen


async def test_parts_of_the_output_are_kept_in_order(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.say(chunk=pb.InvokeChunk(number=1, text="a"))
        await talk.say(progress=pb.InvokeProgress(number=2, message="half", fraction=0.5))
        await talk.say(chunk=pb.InvokeChunk(number=3, json='{"b":1}'))
        await talk.say(chunk=pb.InvokeChunk(number=4, binary=b"c"))
        await talk.result()

    rogue.script = script
    action = (await run(kernel, "far.read", {}, "k1")).action
    expected = [
        '{"text":"a"}',
        '{"message":"half","fraction":0.5}',
        '{"json":"{\\"b\\":1}"}',
        '{"base64":"Yw=="}',
    ]
    assert expected == await said(kernel, action.action_id)


async def test_output_that_is_no_json_or_breaks_the_schema_is_a_bad_output(
    kernel: Kernel, rogue: Rogue
) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.result('{"a":1,"a":2}')

    rogue.script = script
    with pytest.raises(OutputSchemaViolation):
        await run(kernel, "far.unsafe", {}, "k1")
    assert "DONE" == (await only_action(kernel)).effect


async def test_local_handlers_are_never_sent_elsewhere(kernel: Kernel, rogue: Rogue) -> None:
    assert "here" == output((await run(kernel, "near.read", {})).action)


async def test_nothing_was_done_where_nobody_listens(kernel: Kernel, rogue: Rogue) -> None:
    await rogue.die()
    with pytest.raises(ConnectorUnavailable) as caught:
        await run(kernel, "far.unsafe", {}, "k1")
    outcome = caught.value.outcome
    assert outcome is not None
    assert ("UNAVAILABLE", "not_reached", "NOT_DONE", "SAME_KEY") == (
        caught.value.code,
        caught.value.failure_code,
        outcome.effect,
        outcome.retry_advice,
    )
    await rogue.start()
    assert {"done": True} == output((await run(kernel, "far.unsafe", {}, "k1")).action)


async def test_child_is_called_and_answered_by_frames(kernel: Kernel, rogue: Rogue) -> None:
    heard: list[tuple[int, str, str]] = []

    async def script(talk: Talk) -> None:
        await talk.accept()
        for number, capability in enumerate(("near.read", "near.gone"), start=1):
            call = pb.ChildCall(number=number, step=f"s{number}", capability=capability, input_json="{}")
            call.scopes.CopyFrom(pb.ScopeLimit(scopes=["orders.read"]))
            await talk.say(child_call=call)
            assert "child_result" == await talk.hear()
            result = talk.heard.child_result
            reason = error_reason_pb2.ErrorReason.Name(result.outcome.reason)
            heard.append((result.number, result.output_json, reason))
        await talk.result()

    rogue.script = script
    running = asyncio.ensure_future(run(kernel, "far.unsafe", {}, "k1"))
    while not running.done():
        await dispatch(kernel)
        await asyncio.sleep(0.005)
    assert {"done": True} == output((await running).action)
    none, gone = "ERROR_REASON_UNSPECIFIED", "ERROR_REASON_CAPABILITY_NOT_FOUND"
    assert [(1, '"here"', none), (2, "", gone)] == heard
    child = await read(kernel, child_id((await running).action.action_id, "s1"))
    assert (("orders.read",), ("far.unsafe",)) == (
        child.requester.scopes,
        tuple(each.subject for each in child.requester.delegation),
    )
