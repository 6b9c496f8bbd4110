"""The reply to a statement is lost, and the statement is carried out later than somebody looks for what it has done: it
waits for a row, or it is still on its way to Postgres. Then it must take no effect any more.
"""

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from placet.context import Context
from placet_server.core.admission import child as admission_of_children
from placet_server.core.admission.pipeline import Checked, check
from placet_server.core.kernel import Kernel
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.store.connection import connect, end_process, identify
from tests.core.family import family
from tests.core.kernels import QUEUE, open_kernel, run
from tests.core.test_child_begun_at_once import calls_one
from tests.core.test_lost_replies import once
from tests.core.workshop import Workshop
from tests.postgres import Database

Send = Callable[[], Any]


class Slow:
    """A connection on whose way to Postgres `hold` keeps one statement; who sent it hears that it is lost, and
    Postgres does not.
    """

    def __init__(self, real: Any, hold: Callable[[str], bool], held: list[Send]) -> None:
        self._real = real
        self._hold = hold
        self._held = held
        self._is_lost = False

    async def fetch(self, sql: str, *arguments: Any, timeout: float) -> Any:  # noqa: ASYNC109
        if not self._hold("".join(str(argument) for argument in arguments)):
            return await self._real.fetch(sql, *arguments, timeout=timeout)
        self._held.append(lambda: self._real.fetch(sql, *arguments))
        self._is_lost = True
        raise ConnectionResetError("the reply is lost")

    def terminate(self) -> None:
        if not self._is_lost:
            self._real.terminate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def hold_back(kernel: Kernel, hold: Callable[[str], bool]) -> list[Send]:
    """Of what the writer sends from its next connection on, which is at once. What is held can be sent on later."""
    connection: Any = kernel.journal.writer._connection
    real_connect, held = connection._connect, list[Send]()

    async def slow() -> Any:
        return Slow(await real_connect(), hold, held)

    connection._connect = slow
    if connection.current is not None:
        connection.current.terminate()
    return held


async def arrives(held: list[Send]) -> None:
    (send,) = held
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)):
        await send()


async def test_a_checkpoint_does_not_come_after_the_next_one(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()

    async def marks(context: Context) -> str:
        await context.checkpoint("first", 1)
        await context.checkpoint("second", 2)
        await arrives(held)
        async with kernel.journal.pool.connection() as connection:
            return str(await connection.fetchval("select provider_operation from actions"))

    shop.script = marks
    async with open_kernel(database.dsn, shop.app) as kernel:
        held = hold_back(kernel, once('"provider_operation":"first"'))
        done = await run(kernel, "work.unsafe_marked", {}, "k")
        assert '"second"' == done.action.output_json


async def test_a_child_whose_refusal_was_told_is_not_there_afterwards(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def allowed_once(*arguments: Any, **options: Any) -> Checked:
        asked.append(options)
        if len(asked) > 1:
            raise CapabilityNotFound(capability="work.unsafe", version="1")
        return await check(*arguments, **options)

    async def refused(context: Context) -> Any:
        with pytest.raises(Exception, match=r"work\.unsafe"):
            await calls_one(context)
        await arrives(held)
        return {"order": "none"}

    shop = family(refused)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        held = hold_back(kernel, once('"step":"charge"'))
        monkeypatch.setattr(admission_of_children, "check", allowed_once)
        await run(kernel, "work.idempotent", {}, "k")
        async with kernel.journal.pool.connection() as connection:
            assert 1 == await connection.fetchval("select count(*) from actions")
    assert 0 == shop.effects


@pytest.mark.both_servers
async def test_the_end_of_another_connection_is_that_ones_alone_and_is_waited_for(database: Database) -> None:
    one, other = await connect(database.dsn), await connect(database.dsn)
    process = await identify(other)
    earlier = process._replace(started=process.started.replace(year=2020))
    assert await end_process(one, earlier, 1.0)
    assert 1 == await other.fetchval("select 1")
    await other.execute("select pg_advisory_lock(1)")
    assert await end_process(one, process, 1.0)
    assert await one.fetchval("select pg_try_advisory_lock(1)")
    assert await end_process(one, process, 1.0)
    other.terminate()
    await one.close()
