"""What befalls the store costs a run no attempt: it is away while the run opens, or still at work on an entry that is
sent again. What is broken in it ends the run at once, as no try would do better.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say, call
from placet_server.core.kernel import Kernel
from placet_server.harness import opening, tools
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop, said
from tests.core.conversations import said_in, session
from tests.core.kernels import output
from tests.postgres import Database

S = ActionState
WAITS = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def test_a_store_that_is_away_while_a_run_opens_is_waited_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, away = tools.resolve, [StoreUnavailable(detail="it restarts")]

    async def resolve(*arguments: Any) -> Sequence[Any]:
        if away:
            raise away.pop()
        return await find(*arguments)

    monkeypatch.setattr(opening, "resolve", resolve)
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        ended = await asked(kernel)
        assert (said("Hello."), 1, []) == (output(ended), ended.attempt, away)


class Doubled:
    """The connection of a writer. The first flush that says so is at work already when it is sent: so it was before,
    on a connection that is lost.
    """

    def __init__(self, real: Any, kernel: Kernel, text: str) -> None:
        self._real = real
        self._pool = kernel.journal.pool
        self._texts = [text]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def fetch(self, sql: str, *arguments: Any, timeout: float) -> Any:  # noqa: ASYNC109
        if not (self._texts and self._texts[0] in str(arguments)):
            return await self._real.fetch(sql, *arguments, timeout=timeout)
        self._texts.clear()
        async with self._pool.tx() as first, self._pool.connection() as looking:
            await first.fetch(sql, *arguments)
            again = asyncio.ensure_future(self._real.fetch(sql, *arguments, timeout=timeout))
            while not await looking.fetchval(WAITS):
                pass
        with pytest.raises(asyncpg.UniqueViolationError):
            await again
        return await again


@pytest.mark.parametrize("type_", ["opened", "answered"])
async def test_an_entry_that_is_sent_again_while_it_is_written_is_there_once(
    database: Database, type_: str
) -> None:
    script = [Say("", call("shop-count", order="A-1")), Say("One.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        connection: Any = kernel.journal.writer._connection
        real_connect = connection._connect

        async def connect() -> Any:
            return Doubled(await real_connect(), kernel, f'"type":"{type_}"')

        connection._connect = connect
        if connection.current is not None:
            connection.current.terminate()
        ended = await asked(kernel)
        assert (said("One."), 1, 2) == (output(ended), ended.attempt, len(server.requests))


@pytest.mark.parametrize(
    ("breaks", "told"),
    [
        ("delete from run_entries where ordinal = 2", "answered after entry 1"),
        ("update run_entries set body = 'x' where ordinal = 3", "entry 3: "),
    ],
)
async def test_what_is_broken_in_the_past_of_a_session_ends_a_run_at_once(
    database: Database, caplog: pytest.LogCaptureFixture, breaks: str, told: str
) -> None:
    async with OpenAIServer([Say("One.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        first = await said_in(kernel, one, "Hi.", "k1")
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(breaks)
        second = await said_in(kernel, one, "And?", "k2")
        assert (S.FAILED, "memory_broken", 1) == (second.state, second.failure_code, second.attempt)
        (record,) = [each for each in caplog.records if "cannot go on" in each.message]
        assert f"run {first.action_id}, which was before it: {told}" in record.message
