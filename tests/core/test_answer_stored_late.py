"""A run asks for the calls of an answer while that is being stored, which may take longer than to hear of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from placet_server.core.kernel import Kernel
from placet_server.model.lifecycle import ActionState
from placet_server.store.batch_item import ChildRow, EntryItem
from tests.core.kernels import QUEUE, open_kernel, put, read, work_off
from tests.core.policies import admit
from tests.core.scripted import ASKED, Scripted
from tests.postgres import Database


def set_aside_first_answer(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As one is whose row somebody holds. What is returned has it written."""
    append = kernel.journal.writer.append
    held: list[tuple[EntryItem, asyncio.Future[Any]]] = []

    def late(entry: EntryItem) -> asyncio.Future[Any]:
        if entry["type"] != "answered" or held:
            return append(entry)
        written = asyncio.get_running_loop().create_future()
        held.append((entry, written))
        return written

    def release() -> None:
        ((entry, written),) = held
        if not written.done():
            append(entry).add_done_callback(lambda done: written.set_result(done.result()))

    monkeypatch.setattr(kernel.journal.writer, "append", late)
    return release


async def test_the_run_goes_on_when_a_call_came_before_its_answer(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(["plan.quick"])
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        release = set_aside_first_answer(kernel, monkeypatch)
        admit_child = kernel.journal.writer.admit_child
        answers: list[Any] = []

        def asked(row: ChildRow) -> asyncio.Future[Any]:
            writing = admit_child(row)
            if not answers:
                writing.add_done_callback(lambda done: release())
            writing.add_done_callback(lambda done: answers.append(done.result()))
            return writing

        monkeypatch.setattr(kernel.journal.writer, "admit_child", asked)
        action = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        stored = await read(kernel, action.action_id)
        assert (ActionState.SUCCEEDED, 1) == (stored.state, stored.attempt)
        assert ([1, 2], ["1-1"]) == (script.requests, script.done)
        assert answers[0] is None


async def test_nothing_is_told_of_a_refusal_before_the_answer_is_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(["plan.find"])
    async with open_kernel(
        database.dsn, script.app, queue=QUEUE, programs=script, boundary_hook=script.reached
    ) as kernel:
        await admit(
            kernel,
            'permit(principal, action, resource); forbid(principal, action == Action::"plan.find", resource);',
        )
        release = set_aside_first_answer(kernel, monkeypatch)
        monkeypatch.setattr(kernel.engine.observer, "refused", lambda reason: release())
        action = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, action.action_id)).state
        reached = [name for name, nth in script.log if nth == 1]
        assert reached.index("turn_answered") < reached.index("calls_admitted") < reached.index("call_told")
