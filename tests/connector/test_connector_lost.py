"""A connector, or the way to it, is lost: before it was told to begin nothing was done, after that it is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from placet.v1 import connector_service_pb2 as pb
from placet_server.connector import conversation
from placet_server.connector.conversation import Conversation
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.run import settle_late
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.resolve import Finding
from placet_server.model.action import Action
from placet_server.model.connector_errors import ConnectorUnavailable
from placet_server.model.lifecycle import ActionState
from tests.connector.rogue import (
    BEGUN,
    FAR,
    HASTY,
    NOT_BEGUN,
    SHORT_GRACE,
    Rogue,
    Talk,
    Way,
    admit,
    ends,
    finish,
    first_only,
)
from tests.core.kernels import ALICE, only_action, output, read, run, until
from tests.core.test_ambiguous_resolved import resolve

STOPPED = {
    "far.read": "CANCELLED DEADLINE_EXCEEDED",
    "far.idempotent": "SUCCEEDED in attempt 2",
    "far.reconcilable": "AMBIGUOUS TIMEOUT",
    "far.unsafe": "AMBIGUOUS TIMEOUT",
    "far.unsafe_marked": "CANCELLED DEADLINE_EXCEEDED",
}


async def test_stream_that_ends_before_it_was_accepted(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.refuse(grpc.StatusCode.UNAVAILABLE)

    rogue.script = script
    assert NOT_BEGUN == await ends(kernel)


async def test_stream_that_ends_after_it_was_begun(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.refuse(grpc.StatusCode.UNAVAILABLE)

    rogue.script = first_only(script)
    assert BEGUN == await ends(kernel)


async def test_stream_that_ends_well_without_an_answer(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()

    rogue.script = first_only(script)
    assert BEGUN == await ends(kernel)


async def test_process_that_dies_while_all_of_them_run(kernel: Kernel, rogue: Rogue) -> None:
    begun = 0

    async def script(talk: Talk) -> None:
        nonlocal begun
        await talk.accept()
        begun += 1
        await talk.hear()

    rogue.script = first_only(script)
    ending = asyncio.ensure_future(ends(kernel))
    await until(lambda: begun == len(FAR))
    await rogue.die()
    await rogue.start()
    assert BEGUN == await ending


@pytest.mark.parametrize("settings", [HASTY], ids=[""])
async def test_acceptance_that_is_lost_on_the_way_back_began_nothing(kernel: Kernel, rogue: Rogue) -> None:
    heard: list[str] = []
    async with Way(rogue.port) as way:
        await admit(kernel, rogue.manifest(way.port))

        async def script(talk: Talk) -> None:
            await talk.hear_start()
            way.lose("back")
            try:
                await talk.say(accepted=pb.InvokeAccepted())
                heard.append(await talk.hear())
            except (asyncio.CancelledError, grpc.aio.BaseError):
                # It was given up before that could be said.
                heard.append("end")
                raise

        rogue.script = script
        assert {"far.unsafe": NOT_BEGUN["far.unsafe"]} == await ends(kernel, ["far.unsafe"])
        await until(lambda: bool(heard))
    assert ["end"] == heard


@pytest.mark.parametrize("settings", [HASTY], ids=[""])
async def test_connection_that_is_half_open_is_noticed(kernel: Kernel, rogue: Rogue) -> None:
    begun = 0
    async with Way(rogue.port) as way:
        await admit(kernel, rogue.manifest(way.port))

        async def script(talk: Talk) -> None:
            nonlocal begun
            await talk.accept()
            begun += 1
            if begun == len(FAR):
                way.lose()
            await talk.hear()

        rogue.script = first_only(script)
        assert BEGUN == await ends(kernel)


@pytest.mark.parametrize("settings", [SHORT_GRACE], ids=[""])
async def test_one_that_never_answers_is_asked_to_stop_and_then_judged(kernel: Kernel, rogue: Rogue) -> None:
    heard: list[str] = []

    async def script(talk: Talk) -> None:
        await talk.accept()
        heard.append(await talk.hear())
        await talk.hear()

    rogue.script = first_only(script)
    assert STOPPED == await ends(kernel, timeout_seconds=1.0)
    assert ["cancel"] * len(FAR) == heard


@pytest.mark.parametrize("settings", [SHORT_GRACE], ids=[""])
async def test_one_that_never_reads_does_not_hold_the_attempt_beyond_its_grace(
    kernel: Kernel, rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Conversation._write

    async def stuck(talk: Conversation, frame: pb.InvokeRequest) -> None:
        if frame.HasField("cancel"):
            await asyncio.Event().wait()
        await write(talk, frame)

    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.hear()

    monkeypatch.setattr(Conversation, "_write", stuck)
    rogue.script = script
    told = asyncio.ensure_future(ends(kernel, ["far.unsafe"], timeout_seconds=0.5, time_left_seconds=None))
    await until(told.done)
    assert {"far.unsafe": "AMBIGUOUS TIMEOUT"} == told.result()


@pytest.mark.parametrize("settings", [HASTY], ids=[""])
async def test_one_that_never_accepts_began_nothing(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.hear_start()
        await talk.hear()

    rogue.script = script
    assert NOT_BEGUN == await ends(kernel)


async def test_answer_after_it_was_asked_to_stop_counts(kernel: Kernel, rogue: Rogue) -> None:
    async def script(talk: Talk) -> None:
        await talk.accept()
        assert "cancel" == await talk.hear()
        await talk.result()

    rogue.script = script
    assert dict.fromkeys(FAR, "SUCCEEDED in attempt 1") == await ends(kernel, timeout_seconds=1.0)


@pytest.mark.parametrize("settings", [SHORT_GRACE], ids=[""])
async def test_answer_after_it_was_given_up_ends_what_is_ambiguous(kernel: Kernel, rogue: Rogue) -> None:
    given_up = asyncio.Event()
    heard: list[str] = []

    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.hear()
        await given_up.wait()
        await talk.result()
        heard.append(await talk.hear())

    rogue.script = script
    told = await ends(kernel, ["far.unsafe"], timeout_seconds=1.0)
    assert {"far.unsafe": "AMBIGUOUS TIMEOUT"} == told
    given_up.set()
    await until(lambda: bool(heard))
    assert ["settle_ack"] == heard
    done = (await run(kernel, "far.unsafe", {}, "key of far.unsafe")).action
    assert (1, {"done": True}) == (done.attempt, output(done))


@pytest.mark.parametrize("settings", [SHORT_GRACE], ids=[""])
async def test_an_answer_that_a_person_forestalled_is_not_acknowledged(kernel: Kernel, rogue: Rogue) -> None:
    """The connector keeps it: should the action be redriven, a lookup is told of it."""
    given_up = asyncio.Event()
    heard: list[str] = []

    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.hear()
        await given_up.wait()
        await talk.result()
        heard.append(await talk.hear())

    rogue.script = script
    assert {"far.unsafe": "AMBIGUOUS TIMEOUT"} == await ends(kernel, ["far.unsafe"], timeout_seconds=1.0)
    await resolve(kernel, (await only_action(kernel)).action_id, Finding.DONE)
    given_up.set()
    await until(lambda: bool(heard))
    assert ["end"] == heard


@pytest.mark.parametrize("settings", [replace(SHORT_GRACE, late_seconds=0.5)], ids=[""])
async def test_an_answer_at_the_last_moment_is_settled_however_long_that_takes(
    kernel: Kernel, rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up, is_over, asked = asyncio.Event(), asyncio.Event(), 0

    async def slow(*what: Any) -> Action | None:
        nonlocal asked
        asked += 1
        await is_over.wait()
        return await settle_late(*what)

    async def script(talk: Talk) -> None:
        await talk.accept()
        await talk.hear()
        await given_up.wait()
        await talk.result()
        await talk.hear()

    monkeypatch.setattr(conversation, "settle_late", slow)
    rogue.script = script
    assert {"far.unsafe": "AMBIGUOUS TIMEOUT"} == await ends(kernel, ["far.unsafe"], timeout_seconds=0.5)
    given_up.set()
    routes: Any = kernel.engine.handlers.connectors
    (kept,) = routes._links.values()
    await until(lambda: asked == 1 and not kept.link.running)
    is_over.set()
    async with asyncio.timeout(20):
        while (done := await only_action(kernel)).state is ActionState.AMBIGUOUS:
            pass
    assert {"done": True} == output(done)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "token_refused"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
        (grpc.StatusCode.NOT_FOUND, "not_served"),
        (grpc.StatusCode.INTERNAL, "lost"),
    ],
)
async def test_refusal_is_told_by_a_word_of_our_own(
    kernel: Kernel, rogue: Rogue, code: grpc.StatusCode, told: str
) -> None:
    async def script(talk: Talk) -> None:
        await talk.hear_start()
        await talk.refuse(code)

    rogue.script = script
    with pytest.raises(ConnectorUnavailable) as caught:
        await run(kernel, "far.unsafe", {}, "k1")
    assert told == caught.value.failure_code
    assert "secret" not in caught.value.text()


async def test_process_that_began_since_is_described_again_and_asked_once_more(
    kernel: Kernel, rogue: Rogue
) -> None:
    old = rogue.boot_id

    async def script(talk: Talk) -> None:
        start = await talk.hear_start()
        if start.boot_id != rogue.boot_id:
            await talk.refuse(grpc.StatusCode.FAILED_PRECONDITION)
        await finish(talk)

    rogue.script = script
    await run(kernel, "far.read", {}, "k1")
    rogue.boot_id = "0" * 8 + old[8:]
    done = await run(kernel, "far.unsafe", {}, "k2")
    assert 1 == done.action.attempt


async def test_cancel_before_it_was_begun_is_certain(kernel: Kernel, rogue: Rogue) -> None:
    ids: list[str] = []
    started = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.hear_start()
        started.set()
        await talk.hear()

    rogue.script = script
    note: Callable[[str], None] = ids.append
    running = asyncio.ensure_future(run(kernel, "far.unsafe", {}, "k1", on_admitted=note))
    await started.wait()
    await cancel_action(kernel.engine, ALICE, ids[0], "")
    await asyncio.wait((running,))
    action = await read(kernel, ids[0])
    assert (ActionState.CANCELLED, "NOT_DONE") == (action.state, action.effect)
    assert running.exception() is not None
