"""Handlers that are asked to stop: some do, some do not, and the process outlives both."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

import placet
from placet.connector import attempt
from placet.v1 import connector_service_pb2 as pb
from tests.sdk.dialler import dialled
from tests.sdk.errand import Errands

CANCEL = pb.InvokeCancel(cause="CANCELLED_BY_CALLER")


@pytest.mark.parametrize("capability", ["desk.read", "desk.tell"])
async def test_a_handler_that_stops_when_asked_answers_that_it_does_not_know(capability: str) -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun(capability, {"text": "x"})
        await errands.entered.wait()
        await stream.send(cancel=CANCEL)
        await stream.send(cancel=CANCEL)
        failure = await stream.settled()
    assert "undeclared_error" == failure.code
    assert errands.contexts[0].cancelled
    assert 0 == errands.done


async def test_a_success_against_a_cancel_is_a_success() -> None:
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.tell", {"text": "x", "looks": False})
        await errands.entered.wait()
        await stream.send(cancel=CANCEL)
        await dialler.stub.Describe(pb.DescribeRequest())
        errands.thread_open.set()
        assert '"x"' == (await stream.settled()).output_json


async def test_a_handler_may_say_how_it_was_stopped() -> None:
    async def run(context: placet.Context) -> None:
        try:
            await context.wait_cancelled()
        finally:
            raise placet.Failure("stopped", effect="not_done")

    errands = Errands()
    errands.runs["it"] = run
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.run", {"what": "it"})
        await errands.entered.wait()
        await stream.send(cancel=CANCEL)
        assert "stopped" == (await stream.settled()).code


async def test_a_thread_that_waits_for_an_ack_is_woken_by_a_cancel() -> None:
    app = placet.App("desk")

    @app.tool("desk.mark", "unsafe", effect_marked=True)
    def mark(context: placet.SyncContext) -> None:
        context.effect()

    async with dialled(app) as dialler:
        stream = await dialler.begun("desk.mark")
        assert "effect_mark" == (await stream.next())[0]
        await stream.send(cancel=CANCEL)
        assert "undeclared_error" == (await stream.settled()).code


async def test_what_nobody_stops_stops_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "LATE_SECONDS", 0.0)
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.begun("desk.read", seconds=0.2)
        assert "undeclared_error" == (await stream.settled()).code
        assert 0.0 == errands.contexts[0].time_left()


async def test_proceed_that_does_not_come_in_time_frees_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PROCEED_SECONDS", 0.05)
    errands = Errands()
    async with dialled(errands.app) as dialler:
        stream = await dialler.invoke(dialler.start("desk.read"))
        assert ["accepted", grpc.StatusCode.ABORTED] == await stream.names()
        assert [] == dialler.connector.table.running
    assert not errands.entered.is_set()


async def test_handlers_that_never_end_do_not_keep_the_process() -> None:
    async def stubborn(context: placet.Context) -> None:
        while not errands.open.is_set():
            try:
                await errands.open.wait()
            except asyncio.CancelledError:
                continue

    errands = Errands()
    errands.runs["it"] = stubborn
    begin = time.monotonic()
    async with dialled(errands.app, stop_seconds=0.1) as dialler:
        await dialler.begun("desk.run", {"what": "it"})
        await errands.entered.wait()
        errands.entered.clear()
        await dialler.begun("desk.tell", {"text": "x", "looks": False})
        await errands.entered.wait()
    errands.thread_open.set()
    errands.open.set()
    assert time.monotonic() - begin < 20
