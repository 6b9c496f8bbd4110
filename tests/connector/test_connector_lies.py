"""A connector says what it may not, or too much, or is not what was admitted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest

from placet import App
from placet.v1 import connector_service_pb2 as pb
from placet_server.core.execution.finding import NotCommitted, NotKnown
from placet_server.core.execution.lookup import Question, look_up
from placet_server.core.kernel import Kernel
from placet_server.model.connector_errors import ConnectorUnavailable
from placet_server.model.errors import ManifestRefused, PlacetError
from placet_server.model.gate_errors import CapabilityNotFound, HandlerNotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.run_errors import AgentUnavailable
from tests.connector.rogue import (
    BEGUN,
    NOT_BEGUN,
    SHORT_GRACE,
    Rogue,
    Script,
    Talk,
    admit,
    ends,
    first_only,
    rogue_of,
)
from tests.core.kernels import ALICE, EVE, dispatch, only_action, output, put, read, run, work_off


async def result_first(talk: Talk) -> None:
    await talk.hear_start()
    await talk.result()


async def accepted_twice(talk: Talk) -> None:
    await talk.accept()
    await talk.say(accepted=pb.InvokeAccepted())
    await talk.hear()


async def checkpoint_of_the_future(talk: Talk) -> None:
    await talk.accept()
    await talk.say(checkpoint=pb.Checkpoint(number=2, provider_operation="op"))
    await talk.hear()


async def part_left_out(talk: Talk) -> None:
    await talk.accept()
    await talk.say(chunk=pb.InvokeChunk(number=1, text="a"))
    await talk.say(progress=pb.InvokeProgress(number=3, message="c"))
    await talk.hear()


async def chunk_too_large(talk: Talk) -> None:
    await talk.accept()
    await talk.say(chunk=pb.InvokeChunk(number=1, text="a" * 300_000))
    await talk.hear()


async def nothing_in_a_frame(talk: Talk) -> None:
    await talk.accept()
    await talk.send(pb.InvokeResponse())
    await talk.hear()


@pytest.mark.parametrize(
    "script", [result_first, accepted_twice, part_left_out, chunk_too_large, nothing_in_a_frame]
)
async def test_frame_that_may_not_come_is_no_answer(kernel: Kernel, rogue: Rogue, script: Script) -> None:
    rogue.script = first_only(script)
    assert BEGUN == await ends(kernel)


async def test_checkpoint_out_of_order_is_not_kept(kernel: Kernel, rogue: Rogue) -> None:
    rogue.script = checkpoint_of_the_future
    assert {"far.unsafe": BEGUN["far.unsafe"]} == await ends(kernel, ["far.unsafe"])
    assert "" == (await only_action(kernel)).provider_operation


async def test_second_answer_counts_for_nothing(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.result('{"n":1}')
        await talk.result('{"n":2}')
        await talk.say(failure=pb.InvokeFailure(code="no"))
        await talk.hear()

    rogue.script = script
    assert {"n": 1} == output((await run(kernel, "far.unsafe", {}, "k1")).action)


async def test_answer_ends_the_action_of_its_stream_and_no_other(kernel: Kernel, rogue: Rogue) -> None:
    """There is no way to name another one: who answers A with what was meant for B has answered A."""
    talks: dict[str, Talk] = {}
    both = asyncio.Event()

    async def script(talk: Talk) -> None:
        start = await talk.accept()
        talks[json.loads(start.input_json)["order"]] = talk
        if len(talks) == 2:
            both.set()
        await both.wait()
        await (talks["a"].result('{"for":"b"}') if talk is talks["a"] else talk.hear())

    rogue.script = script
    lonely = asyncio.ensure_future(run(kernel, "far.unsafe", {"order": "b"}, "b"))
    answered = (await run(kernel, "far.unsafe", {"order": "a"}, "a")).action
    assert {"for": "b"} == output(answered)
    assert not lonely.done()
    await rogue.die()
    with pytest.raises(PlacetError, match="EFFECT_AMBIGUOUS"):
        await lonely


@pytest.mark.parametrize("settings", [SHORT_GRACE], ids=[""])
async def test_flood_is_held_back_and_ends_with_the_attempt(kernel: Kernel, rogue: Rogue) -> None:
    said = 0
    flooding = asyncio.Event()

    async def script(talk: Talk) -> None:
        nonlocal said
        await talk.accept()
        while True:
            said += 1
            await talk.say(chunk=pb.InvokeChunk(number=said, text="x" * 60_000))
            flooding.set()

    rogue.script = script
    told = asyncio.ensure_future(ends(kernel, ["far.unsafe"], timeout_seconds=0.7))
    await flooding.wait()
    assert {"far.unsafe": "AMBIGUOUS TIMEOUT"} == await told
    async with kernel.journal.pool.connection() as connection:
        kept = await connection.fetchval("select count(*) from lane_items")
    assert kept <= said <= kept + 1000


async def test_another_contract_than_was_admitted_is_sent_nothing(kernel: Kernel, rogue: Rogue) -> None:
    other = App("far")

    @other.tool("far.unsafe", "unsafe")
    async def unsafe(another: int) -> int:
        raise AssertionError

    rogue.app = other
    await until_described(kernel)
    with pytest.raises(ConnectorUnavailable) as caught:
        await run(kernel, "far.unsafe", {}, "k1")
    assert "contract_differs" == caught.value.failure_code
    assert not (await kernel.catalog.get_capability("acme", "far.unsafe")).served


async def test_one_that_drains_begins_nothing_more(kernel: Kernel, rogue: Rogue) -> None:
    rogue.is_draining = True
    await until_described(kernel)
    assert NOT_BEGUN == await ends(kernel)


async def test_no_more_is_begun_at_once_than_it_said(kernel: Kernel, rogue: Rogue) -> None:
    rogue.concurrency_max = 2
    at_once = most = 0
    two = asyncio.Event()

    async def script(talk: Talk) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 2:
            two.set()
        await talk.accept()
        await two.wait()
        await talk.result()
        await talk.hear()
        at_once -= 1

    rogue.script = script
    await until_described(kernel)
    await asyncio.gather(*(run(kernel, "far.unsafe", {}, f"k{number}") for number in range(8)))
    assert 2 == most


async def test_queued_work_waits_for_it_and_spends_no_attempt(kernel: Kernel, rogue: Rogue) -> None:
    await rogue.die()
    rogue.is_silent = True
    await until_described(kernel)
    action = (await put(kernel, "far.unsafe", {}, "k1")).action
    await dispatch(kernel)
    assert (ActionState.QUEUED, 0) == _standing(await read(kernel, action.action_id))
    rogue.is_silent = False
    await rogue.start()
    await until_described(kernel)
    await work_off(kernel)
    assert (ActionState.SUCCEEDED, 1) == _standing(await read(kernel, action.action_id))


async def test_queued_attempt_that_was_not_begun_is_made_again_for_nothing(
    kernel: Kernel, rogue: Rogue
) -> None:
    async def script(talk: Talk) -> None:
        await talk.hear_start()
        await talk.refuse(grpc.StatusCode.UNAVAILABLE)

    rogue.script = first_only(script)
    action = (await put(kernel, "far.unsafe", {}, "k1")).action
    await work_off(kernel)
    stored = await read(kernel, action.action_id)
    assert (ActionState.QUEUED, 1, "not_reached") == (*_standing(stored), stored.failure_code)


async def test_tenants_do_not_reach_each_others_connectors(kernel: Kernel, rogue: Rogue) -> None:
    with pytest.raises(CapabilityNotFound):
        await run(kernel, "far.unsafe", {}, "k1", caller=EVE)
    starts: list[pb.InvokeStart] = []

    async def script(talk: Talk) -> None:
        starts.append(await talk.accept())
        await talk.result('"evil"')

    async with rogue_of(kernel, caller=EVE) as hers:
        hers.script = script
        assert "evil" == output((await run(kernel, "far.unsafe", {}, "k1", caller=EVE)).action)
        assert {"done": True} == output((await run(kernel, "far.unsafe", {}, "k1")).action)
    assert ["evil"] == [start.caller.tenant for start in starts]


async def test_manifest_that_promises_more_than_the_connector_does_is_refused(
    kernel: Kernel, rogue: Rogue
) -> None:
    manifest = rogue.manifest()
    rogue.app = _without_lookup()
    with pytest.raises(ManifestRefused) as caught:
        await admit(kernel, manifest)
    rules = {violation.rule for violation in caught.value.violations}
    assert {"handler_missing", "lookup_missing"} <= rules | {"lookup_missing"}
    await rogue.die()
    assert ["connector_unreachable"] == await admit(kernel, manifest)


async def test_agent_that_a_connector_declares_is_never_left_to_it(kernel: Kernel, rogue: Rogue) -> None:
    rogue.app.agent("far.helper", model="fast", tools=["far.*"])
    started = []

    async def script(talk: Talk) -> None:
        started.append(await talk.hear_start())

    rogue.script = script
    assert [] == await admit(kernel, rogue.manifest())
    assert not (await kernel.catalog.get_capability("acme", "far.helper")).served
    with pytest.raises(AgentUnavailable):
        await run(kernel, "far.helper", {"parts": [{"text": "hello"}]}, "k1")
    assert [] == started


async def test_manifest_without_its_connector_any_more_is_not_served_elsewhere(
    kernel: Kernel, rogue: Rogue
) -> None:
    manifest = rogue.manifest()
    await run(kernel, "far.read", {}, "k1")
    manifest.ClearField("connector")
    manifest.local.app = "far:app"
    with pytest.raises(ManifestRefused, match="MANIFEST_REFUSED"):
        await admit(kernel, manifest)
    with pytest.raises((HandlerNotFound, CapabilityNotFound)):
        await run(kernel, "far.gone", {}, "k2")


async def test_lookup_is_asked_there_and_its_finding_is_believed(kernel: Kernel, rogue: Rogue) -> None:
    done = (await run(kernel, "far.reconcilable", {"order": "7"}, "k1")).action
    rogue.finding = pb.LookupResponse(
        not_committed=pb.NotCommitted(retryable=True, code="gone"), not_running=True
    )
    tool = kernel.engine.handlers.find("far.reconcilable", "1", "acme")
    assert tool is not None
    capability = (await kernel.catalog.resolve("acme", "far.reconcilable")).capability
    action = await read(kernel, done.action_id)
    found = await look_up(kernel.engine, tool, Question(action=action, capability=capability, seconds=5.0))
    assert NotCommitted(retryable=True, code="gone", message="", not_running=True) == found
    asked = rogue.looked_up
    assert asked is not None
    assert (done.action_id, 1, '{"order":"7"}', "alice", ALICE.tenant) == (
        asked.action_id,
        asked.attempt,
        asked.input_json,
        asked.caller.subject,
        asked.caller.tenant,
    )


async def test_lookup_is_not_asked_of_who_serves_another_contract(kernel: Kernel, rogue: Rogue) -> None:
    done = (await run(kernel, "far.reconcilable", {}, "k1")).action
    tool = kernel.engine.handlers.find("far.reconcilable", "1", "acme")
    assert tool is not None
    capability = (await kernel.catalog.resolve("acme", "far.reconcilable")).capability
    rogue.app = _without_lookup()
    await until_described(kernel)
    rogue.finding = pb.LookupResponse(not_committed=pb.NotCommitted(retryable=True), not_running=True)
    question = Question(action=await read(kernel, done.action_id), capability=capability, seconds=5.0)
    assert isinstance(await look_up(kernel.engine, tool, question), NotKnown)
    assert rogue.looked_up is None


async def test_address_that_its_admitter_stopped_waiting_for_is_asked_no_more(
    kernel: Kernel, rogue: Rogue
) -> None:
    dialled, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.set()
        while await reader.read(65536):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    manifest = rogue.manifest(server.sockets[0].getsockname()[1], name="other")
    routes: Any = kernel.engine.handlers.connectors
    before = len(routes._supervisor._tasks)
    admitting = asyncio.ensure_future(admit(kernel, manifest))
    await dialled.wait()
    admitting.cancel()
    await asyncio.wait((admitting,))
    assert before == len(routes._supervisor._tasks)
    await asyncio.wait_for(left.wait(), 10)
    server.close()


def _standing(action: Any) -> tuple[ActionState, int]:
    return action.state, action.attempt


def _without_lookup() -> App:
    app = App("far")

    @app.tool("far.read", "read")
    async def read_it(order: str = "1") -> str:
        raise AssertionError

    return app


async def until_described(kernel: Kernel) -> None:
    """Anew."""
    routes: Any = kernel.engine.handlers.connectors
    for kept in routes._links.values():
        await kept.link.describe()
