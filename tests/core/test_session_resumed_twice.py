"""A resume token is good once, for its owner, in its time; and a lost answer costs nobody a session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from placet_server.core.admission.session import close_session, create_session
from placet_server.core.admission.session_token import resume_session
from placet_server.core.kernel import Kernel
from placet_server.core.publication.session import get_session
from placet_server.model.errors import NotFound
from placet_server.model.run_errors import ResumeTokenSpent, SessionClosed
from placet_server.model.session import NewSession
from placet_server.store import session as sessions
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, BOB, EVE, open_kernel
from tests.core.workshop import Workshop
from tests.postgres import Database

WAITS = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"
START = datetime(2030, 1, 1, tzinfo=UTC)


async def resumed(kernel: Kernel, session_id: str, token: str, key: str = "") -> str:
    """The next token."""
    return (await resume_session(kernel.journal, ALICE, session_id, token, key=key)).resume_token


async def test_each_token_is_good_once_and_a_resend_is_the_same_answer(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        wanted = NewSession(idempotency_key="s")
        made = await create_session(kernel.journal, ALICE, wanted)
        one, first = made.session_id, made.resume_token
        assert 43 == len(first)
        assert first == (await create_session(kernel.journal, ALICE, wanted)).resume_token
        assert "" == (await get_session(kernel.journal, ALICE, one)).resume_token
        second = await resumed(kernel, one, first, "k1")
        assert second == await resumed(kernel, one, first, "k1")
        assert "" == (await create_session(kernel.journal, ALICE, wanted)).resume_token
        for token, key in ((first, ""), (first, "k2"), ("x", "k1"), (second[:-1], "k1")):
            with pytest.raises(ResumeTokenSpent) as spent:
                await resumed(kernel, one, token, key)
            assert "not_current" == spent.value.problem
        third = await resumed(kernel, one, second)
        assert 3 == len({first, second, third})
        # What was answered once is not answered again after the answer was used.
        with pytest.raises(ResumeTokenSpent):
            await resumed(kernel, one, first, "k1")
        with pytest.raises(ResumeTokenSpent):
            await resumed(kernel, one, second)
        async with kernel.journal.pool.connection() as connection:
            kept = str(await connection.fetch("select s::text from sessions as s"))
        assert not [token for token in (first, second, third) if token in kept]


async def test_of_many_who_try_at_once_one_goes_on(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        made = await create_session(kernel.journal, ALICE, NewSession())
        answers = await asyncio.gather(
            *(resumed(kernel, made.session_id, made.resume_token, f"k{number}") for number in range(5)),
            return_exceptions=True,
        )
        assert 1 == len([answer for answer in answers if isinstance(answer, str)])
        assert 4 == len([answer for answer in answers if isinstance(answer, ResumeTokenSpent)])


async def test_a_token_is_nobody_elses_nor_good_for_long_nor_for_what_is_closed(database: Database) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Workshop().app, clock=clock) as kernel:
        made = await create_session(kernel.journal, ALICE, NewSession())
        one, token = made.session_id, made.resume_token
        for stranger in (BOB, EVE, replace(ALICE, tenant="other")):
            with pytest.raises(NotFound):
                await resume_session(kernel.journal, stranger, one, token, key="")
        token = await resumed(kernel, one, token)
        clock.advance(timedelta(hours=24))
        with pytest.raises(ResumeTokenSpent) as spent:
            await resumed(kernel, one, token)
        assert "expired" == spent.value.problem
        await close_session(kernel, ALICE, one, cancel=False)
        with pytest.raises(SessionClosed):
            await resumed(kernel, one, token)


async def test_who_resumes_while_it_is_closed_burns_and_moves_nothing(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        made = await create_session(kernel.journal, ALICE, NewSession())
        one = made.session_id
        async with kernel.journal.pool.tx() as other:
            await sessions.lock(other, "acme", one, subject=None, now=None)
            await sessions.close(other, "acme", one, None)
            asking = asyncio.ensure_future(resumed(kernel, one, made.resume_token))
            async with kernel.journal.pool.connection() as connection:
                while not await connection.fetchval(WAITS):
                    pass
        with pytest.raises(SessionClosed):
            await asking
        async with kernel.journal.pool.connection() as connection:
            burnt = await connection.fetchval("select burnt_digest from sessions")
        closed = await get_session(kernel.journal, ALICE, one)
        assert (made.expire_time_us, None) == (closed.expire_time_us, burnt)
