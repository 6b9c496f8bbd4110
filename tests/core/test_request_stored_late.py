"""A model is asked once the store has said that it will be, however long that takes, and however the request ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.harness.provider.exchange import Exchange
from placet_server.model.lifecycle import ActionState
from placet_server.store import run as runs
from placet_server.store.batch_item import EntryItem
from placet_server.store.run import EntryStanding
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, open_shop
from tests.core.kernels import ALICE, dispatch, put, read, until, work_off
from tests.core.scripted import entries
from tests.postgres import Database


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """Requests that are made, and wait to be sent."""
    found: list[Exchange] = []
    let_go = Exchange.let_go

    async def noted(exchange: Exchange) -> None:
        found.append(exchange)
        await let_go(exchange)

    monkeypatch.setattr(Exchange, "let_go", noted)
    return found


def set_aside_request(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """What is returned has it written, or says that it cannot be."""
    append = kernel.journal.writer.append
    held: list[tuple[EntryItem, asyncio.Future[Any]]] = []

    def late(entry: EntryItem) -> asyncio.Future[Any]:
        if entry["type"] != "requested" or held:
            return append(entry)
        written = asyncio.get_running_loop().create_future()
        held.append((entry, written))
        return written

    def release(is_written: bool) -> None:
        ((entry, written),) = held
        if is_written:
            append(entry).add_done_callback(lambda done: written.set_result(done.result()))
        else:
            written.set_result(None)

    monkeypatch.setattr(kernel.journal.writer, "append", late)
    return release


async def test_it_is_asked_when_the_request_is_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch, waiting: list[Exchange]
) -> None:
    reached: list[tuple[str, int]] = []

    def note(boundary: str, capability: str) -> None:
        if capability == "shop.helper":
            reached.append((boundary, len(server.requests)))

    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server, hook=note) as kernel,
    ):
        release = set_aside_request(kernel, monkeypatch)
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: bool(waiting), 20.0)
        assert "turn_requested" not in dict(reached)
        release(True)
        await working
        assert ActionState.SUCCEEDED is (await read(kernel, action.action_id)).state
        assert [("turn_requested", 0), ("turn_sent", 0), ("turn_received", 1)] == [
            (name, count) for name, count in reached if name.startswith("turn_") and name != "turn_answered"
        ]


async def test_it_is_not_asked_by_who_has_lost_the_lease(
    database: Database, monkeypatch: pytest.MonkeyPatch, waiting: list[Exchange]
) -> None:
    async def find_written(*_: Any) -> EntryStanding:
        return EntryStanding(lease_id=None, digest=None)

    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        release = set_aside_request(kernel, monkeypatch)
        monkeypatch.setattr(runs, "find_written", find_written)
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: bool(waiting), 20.0)
        release(False)
        await working
        assert ["opened"] == [type_ for _, type_, *_ in await entries(kernel, action.action_id)]
        # It is as it was: nothing of it was put down to the model.
        assert (ActionState.RUNNING, 0) == (
            (await read(kernel, action.action_id)).state,
            len(server.requests),
        )


async def test_it_is_not_asked_once_the_run_is_cancelled(
    database: Database, monkeypatch: pytest.MonkeyPatch, waiting: list[Exchange]
) -> None:
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        release = set_aside_request(kernel, monkeypatch)
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: bool(waiting), 20.0)
        await cancel_action(kernel.engine, ALICE, action.action_id, "enough")
        release(True)
        await working
        assert (ActionState.CANCELLED, 0) == (
            (await read(kernel, action.action_id)).state,
            len(server.requests),
        )
        assert ["opened", "requested"] == [type_ for _, type_, *_ in await entries(kernel, action.action_id)]


async def test_a_store_that_takes_longer_than_the_model_may_costs_no_try(
    database: Database, monkeypatch: pytest.MonkeyPatch, waiting: list[Exchange]
) -> None:
    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server, request_timeout_seconds=0.5) as kernel,
    ):
        release = set_aside_request(kernel, monkeypatch)
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: len(waiting) == 2, 20.0)
        assert not server.requests
        release(True)
        await working
        assert (ActionState.SUCCEEDED, 1) == (
            (await read(kernel, action.action_id)).state,
            len(server.requests),
        )
        assert ["opened", "requested", "answered"] == [
            type_ for _, type_, *_ in await entries(kernel, action.action_id)
        ]
