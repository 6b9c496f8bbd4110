"""A connector that runs one attempt at a time is asked to run a parent and its child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from placet.v1 import connector_service_pb2 as pb
from placet.v1 import error_reason_pb2
from placet_server.connector import link
from placet_server.core.kernel import Kernel
from placet_server.model.lifecycle import ActionState
from tests.connector.rogue import Rogue, Talk, finish
from tests.connector.test_connector_lies import until_described
from tests.core.kernels import dispatch, put, read, run, work_off


class Parents:
    """The script of a connector: `far.unsafe` calls `far.read` there. `at_once`: how many of them there ever were."""

    def __init__(self) -> None:
        self.at_once = 0
        self.reasons: list[int] = []
        self._running = 0

    async def __call__(self, talk: Talk) -> None:
        start = await talk.hear_start()
        if start.capability != "far.unsafe":
            await finish(talk)
            return
        await talk.accept()
        self._running += 1
        self.at_once = max(self.at_once, self._running)
        await talk.say(
            child_call=pb.ChildCall(number=1, step="s", capability="far.read", input_json='{"order":"1"}')
        )
        assert "child_result" == await talk.hear()
        self.reasons.append(talk.heard.child_result.outcome.reason)
        self._running -= 1
        await talk.result()
        await talk.hear()


@pytest.fixture
async def parents(kernel: Kernel, rogue: Rogue) -> Parents:
    parents = Parents()
    rogue.script, rogue.concurrency_max = parents, 1
    await until_described(kernel)
    return parents


async def test_children_begin_where_their_parents_wait_and_are_done_before_more_is_begun(
    kernel: Kernel, parents: Parents
) -> None:
    ids = [(await put(kernel, "far.unsafe", {}, f"k{n}")).action.action_id for n in range(3)]
    await _dispatch_until(kernel, lambda: len(parents.reasons) == len(ids))
    await work_off(kernel)
    assert [ActionState.SUCCEEDED] * 3 == [(await read(kernel, each)).state for each in ids]
    assert 1 == parents.at_once


async def test_a_caller_who_waits_for_a_slot_keeps_no_child_from_one(
    kernel: Kernel, parents: Parents
) -> None:
    calls = [asyncio.ensure_future(run(kernel, "far.unsafe", {}, f"k{number}")) for number in range(3)]
    await _dispatch_until(kernel, lambda: all(call.done() for call in calls))
    assert [ActionState.SUCCEEDED] * 3 == [(await call).action.state for call in calls]


async def test_more_that_wait_than_a_connector_bears_are_told_at_once(
    kernel: Kernel, parents: Parents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LENT_SHARE", 0)
    await run(kernel, "far.unsafe", {}, "k")
    assert [error_reason_pb2.ERROR_REASON_OVERLOADED] == parents.reasons


async def _dispatch_until(kernel: Kernel, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await dispatch(kernel)
            await asyncio.sleep(0.005)
