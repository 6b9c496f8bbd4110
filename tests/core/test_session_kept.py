"""What a session remembers is kept while it is open, however old, and goes after it was closed, or was idle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from placet.testing.model_servers import KEY, Fail, OpenAIServer, Say, Step, call
from placet_server.core.admission.session import close_session
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.publication.session import get_session
from placet_server.model.errors import NotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.run_errors import SessionClosed
from placet_server.model.session import SessionState
from placet_server.store.clock import FixedClock
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said
from tests.core.conversations import conversation, put_in, said_in, session
from tests.core.kernels import ALICE, output, read, work_off
from tests.core.parking import again
from tests.core.test_retention import clean_all, rows
from tests.postgres import Database

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def test_runs_are_kept_as_long_as_their_session_is_open(database: Database) -> None:
    clock = FixedClock(datetime.now(UTC) + DAY)
    script = [Say("I look.", call("shop-find", order="A-1")), Say("It is red."), Say("As I said.")]
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, Shop(), server, clock=clock) as kernel,
    ):
        one = await session(kernel, idle_seconds=300 * 86400.0)
        idle = await session(kernel, idle_seconds=60 * 86400.0)
        await said_in(kernel, one, "What of A-1?", "k1")
        await said_in(kernel, idle, "What of A-1?", "k2")
        clock.advance(61 * DAY)
        # Who was idle is over at that moment, whether anybody has noted it or not.
        assert SessionState.CLOSED is (await get_session(kernel.journal, ALICE, idle)).state
        with pytest.raises(SessionClosed):
            await put_in(kernel, idle, "Still there?", "k3")
        # It is closed by the first walk, its run goes with the second, and what that called with the third.
        for _ in range(3):
            await clean_all(kernel)
        assert 2 == len(await rows(kernel, "actions"))
        second = await said_in(kernel, one, "Sure?", "k4")
        assert said("As I said.") == output(second)
        assert 5 == len(await conversation(kernel, one))
        await close_session(kernel, ALICE, one, cancel=False)
        clock.advance(61 * DAY)
        for _ in range(3):
            await clean_all(kernel)
        kept = [
            len(await rows(kernel, table)) for table in ("actions", "run_entries", "session_runs", "sessions")
        ]
        assert [0, 0, 0, 0] == kept
        with pytest.raises(NotFound):
            await get_session(kernel.journal, ALICE, one)


async def test_a_session_is_idle_since_its_run_has_ended_and_then_nothing_begins_in_it_again(
    database: Database,
) -> None:
    clock = FixedClock(datetime.now(UTC) + DAY)
    minute = timedelta(seconds=60)
    script: list[Step] = [Say("I pay.", call("shop-pay", order="A-1")), Fail(400), Say("Never.")]
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, Shop(), server, clock=clock) as kernel,
    ):
        one = await session(kernel, idle_seconds=60.0)
        waiting = await said_in(kernel, one, "Pay.", "k1")
        clock.advance(2 * minute)
        await cancel_action(kernel.engine, ALICE, waiting.action_id, "enough")
        await work_off(kernel)
        assert ActionState.CANCELLED is (await read(kernel, waiting.action_id)).state
        # It took longer than that, and is over only now.
        await clean_all(kernel)
        assert SessionState.OPEN is (await get_session(kernel.journal, ALICE, one)).state
        clock.advance(minute - timedelta(seconds=1))
        failed = await said_in(kernel, one, "And?", "k2")
        assert ActionState.FAILED is failed.state
        clock.advance(minute)
        assert SessionState.CLOSED is (await get_session(kernel.journal, ALICE, one)).state
        assert "session_went_on" == await again(kernel, failed.action_id)
