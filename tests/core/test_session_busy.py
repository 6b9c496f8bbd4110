"""A session has one run at a time, whoever comes, however often, and wherever: another is refused, waits, or takes its
place.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.testing.model_servers import KEY, Fail, OpenAIServer, Say, Stall, Step, call
from placet_server.core.admission import session as admission
from placet_server.core.admission import submit as submission
from placet_server.core.admission.session import close_session, create_session
from placet_server.core.admission.submit import Submitted, submit
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.execution.cancel import cancel_action, deliver_cancels
from placet_server.core.kernel import Kernel
from placet_server.core.publication.boundary import BoundaryName
from placet_server.core.publication.session import get_session, sweep_sessions
from placet_server.core.publication.wake import sweep
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.action import Message, Submission
from placet_server.model.caller import Caller
from placet_server.model.errors import MalformedRequest, PlacetError, StoreUnavailable
from placet_server.model.gate_errors import IdempotencyConflict
from placet_server.model.identity_errors import MessageReplayed, QuotaExceeded
from placet_server.model.lifecycle import ActionState
from placet_server.model.run_errors import SessionBusy
from placet_server.model.session import WAITING_MAX, NewSession, OnBusy, SessionUse
from placet_server.store import session as sessions
from placet_server.store import session_run as session_runs
from placet_server.store.clock import FixedClock
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, open_shop, said
from tests.core.conversations import put_in, roles, said_in, session
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    call_of,
    declare_dead,
    dispatch,
    output,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.parking import again
from tests.core.scripted import age
from tests.postgres import Database

S = ActionState
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def test_of_two_that_come_at_once_through_two_kernels_one_is_the_sessions(database: Database) -> None:
    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server) as here,
        open_shop(database.dsn, Shop(), server) as there,
    ):
        for first, second in ((here, there), (there, here)):
            one = await session(here)
            # Both are there before either may go on, in this order.
            async with (
                asyncio.TaskGroup() as coming,
                first.journal.pool.tx() as holding,
                second.journal.pool.connection() as looking,
            ):
                await sessions.lock(holding, "acme", one, subject=None, now=None)
                answers = []
                for waiting, kernel in enumerate((first, second), 1):
                    answers.append(coming.create_task(_put_or_error(kernel, one, f"k{one}{waiting}")))
                    while await looking.fetchval(WAITING) < waiting:
                        pass
            stored, refused = (answer.result() for answer in answers)
            assert isinstance(stored, Submitted)
            assert isinstance(refused, SessionBusy)
            assert stored.action.action_id == refused.action_id
            assert 1 == (await get_session(here.journal, ALICE, one)).run_count


async def test_the_same_key_is_the_same_run_and_never_a_second(database: Database) -> None:
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one, other = await session(kernel), await session(kernel)
        first = (await put_in(kernel, one, "Hi.", "k1")).action
        for on_busy in OnBusy:
            again = await put_in(kernel, one, "Hi.", "k1", on_busy=on_busy)
            assert (first.action_id, True) == (again.action.action_id, again.attached)
        with pytest.raises(IdempotencyConflict):
            await put_in(kernel, other, "Hi.", "k1")
        with pytest.raises(IdempotencyConflict):
            await put(kernel, "shop.helper", {"parts": [{"text": "Hi."}]}, "k1")
        await work_off(kernel)
        assert (1, 1) == (len(server.requests), (await get_session(kernel.journal, ALICE, one)).run_count)


async def test_those_who_may_wait_have_their_turns_in_order_and_not_too_many_wait(database: Database) -> None:
    script = [Say("One."), Say("Two."), Say("Three.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        runs = [(await put_in(kernel, one, "1", "k1")).action]
        for number in (2, 3):
            runs.append((await put_in(kernel, one, str(number), f"k{number}", on_busy=OnBusy.QUEUE)).action)
        stored = await read(kernel, runs[1].action_id)
        assert (S.WAITING, "SESSION", 0, 2) == (stored.state, stored.cause, stored.attempt, stored.sequence)
        assert runs[1].receipt_digest == stored.receipt_digest
        gone = (await put_in(kernel, one, "no", "k4", on_busy=OnBusy.QUEUE)).action
        await cancel_action(kernel.engine, ALICE, gone.action_id, "enough")
        assert S.CANCELLED is (await read(kernel, gone.action_id)).state
        await work_off(kernel)
        ends = [await read(kernel, each.action_id) for each in runs]
        assert [said("One."), said("Two."), said("Three.")] == [output(end) for end in ends]
        assert ["user: 1", "assistant", "user: 2", "assistant", "user: 3"] == roles(server.requests[-1])
        assert [1, 1, 1] == [end.attempt for end in ends]
        await put_in(kernel, one, "5", "k5")
        for number in range(WAITING_MAX):
            await put_in(kernel, one, "more", f"m{number}", on_busy=OnBusy.QUEUE)
        with pytest.raises(SessionBusy, match="send this one again once one of them is over") as busy:
            await put_in(kernel, one, "too many", "k6", on_busy=OnBusy.QUEUE)
        assert "line_full" == busy.value.problem


async def test_who_takes_the_place_of_another_begins_once_that_has_stopped(database: Database) -> None:
    script: dict[str, list[Step]] = {"": [Stall(60.0), Say("Never.")]}
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        first = (await put_in(kernel, one, "1", "k1")).action
        second = (await put_in(kernel, one, "2", "k2", on_busy=OnBusy.QUEUE)).action
        await dispatch(kernel)
        await until(lambda: len(server.requests) == 1, 20.0)
        script[""] = [Say("Instead.")]
        asking = asyncio.ensure_future(
            run(
                kernel,
                "shop.helper",
                {"parts": [{"text": "3"}]},
                "k3",
                session=SessionUse(session_id=one, on_busy=OnBusy.CANCEL_PREVIOUS),
            )
        )
        third = (await asking).action
        assert (S.SUCCEEDED, said("Instead.")) == (third.state, output(third))
        assert [S.CANCELLED, S.CANCELLED] == [
            (await read(kernel, each.action_id)).state for each in (first, second)
        ]
        assert ["user: 1", "user: 3"] == roles(server.requests[-1])


async def test_who_takes_the_place_of_others_and_whoever_else_has_several_of_them_do_not_wait_for_each_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Made by servers whose clocks differ: whoever comes later has the lower id.
    ids = [f"0190a0a0-0000-7000-8000-{number:012d}" for number in (1, 2, 3)]
    monkeypatch.setattr(submission, "new_action_id", ids.pop)
    take = "select from actions where action_id = $1 for update"
    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server) as here,
        open_shop(database.dsn, Shop(), server) as there,
    ):
        one = await session(here)
        first = (await put_in(here, one, "1", "k1")).action
        second = (await put_in(here, one, "2", "k2", on_busy=OnBusy.QUEUE)).action
        assert second.action_id < first.action_id
        async with (
            asyncio.TaskGroup() as coming,
            here.journal.pool.connection() as looking,
            here.journal.pool.tx() as holding,
        ):
            await holding.execute(take, second.action_id)
            third = coming.create_task(put_in(there, one, "3", "k3", on_busy=OnBusy.CANCEL_PREVIOUS))
            while not await looking.fetchval(WAITING):
                pass
            await holding.execute(take, first.action_id)
        await work_off(there)
        ended = [(await read(there, each)).state for each in (first.action_id, second.action_id)]
        assert [S.CANCELLED, S.CANCELLED] == ended
        assert S.SUCCEEDED is (await read(there, third.result().action.action_id)).state


@pytest.mark.parametrize("before", ["is queued", "asks its model", "waits for people"])
async def test_who_takes_the_place_of_another_has_it_although_the_process_died_before_it_told_anybody(
    database: Database, before: str
) -> None:
    is_mortal = False

    def hook(name: BoundaryName, capability: str) -> None:
        if is_mortal and name == "intent_persisted":
            raise Killed

    clock = FixedClock(datetime.now(UTC) + timedelta(days=1))
    begin = Stall(60.0) if before == "asks its model" else Say("I pay.", call("shop-pay", order="A-1"))
    script: dict[str, list[Step]] = {"": [begin, Say("Never.")]}
    shop = Shop()
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, shop, server, hook=hook, clock=clock) as kernel,
    ):
        one = await session(kernel)
        first = (await put_in(kernel, one, "1", "k1")).action
        if before != "is queued":
            await dispatch(kernel)
            await until(lambda: len(server.requests) == 1, 20.0)
        if before == "waits for people":
            await work_off(kernel)
        second = (await put_in(kernel, one, "2", "k2", on_busy=OnBusy.QUEUE)).action
        is_mortal = True
        with pytest.raises(Killed):
            await put_in(kernel, one, "3", "k3", on_busy=OnBusy.CANCEL_PREVIOUS)
        is_mortal = False
        script[""] = [Say("Instead."), Say("Instead.")]
        # What every process does by itself, some seconds later.
        for _ in range(3):
            clock.advance(timedelta(seconds=6))
            await deliver_cancels(kernel.engine)
            await sweep(kernel.journal)
            await sweep_sessions(kernel.journal)
            await close_unwanted(kernel.journal)
            await work_off(kernel)
        ends = [(await read(kernel, each.action_id)).state for each in (first, second)]
        assert ([S.CANCELLED, S.CANCELLED], []) == (ends, shop.paid)
        again = await put_in(kernel, one, "3", "k3", on_busy=OnBusy.CANCEL_PREVIOUS)
        assert (True, said("Instead.")) == (again.attached, output(again.action))


async def test_items_of_a_batch_have_their_turns_in_its_order(database: Database) -> None:
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)

        def item(number: int, on_busy: OnBusy) -> object:
            use = SessionUse(session_id=one, on_busy=on_busy)
            return (call_of("shop.helper", ASKED, f"k{number}", session=use), Submission())

        items = [
            item(1, OnBusy.REFUSE),
            item(2, OnBusy.QUEUE),
            item(3, OnBusy.REFUSE),
            item(1, OnBusy.REFUSE),
        ]
        first, second, third, again = await submit_batch(kernel, items)  # type: ignore[arg-type]
        assert not isinstance(first, PlacetError)
        assert not isinstance(second, PlacetError)
        assert (S.QUEUED, S.WAITING) == (first.action.state, second.action.state)
        assert isinstance(third, SessionBusy)
        assert not isinstance(again, PlacetError)
        assert (first.action.action_id, True) == (again.action.action_id, again.attached)


async def test_a_crash_between_the_end_of_a_run_and_the_turn_of_the_next_frees_the_session(
    database: Database,
) -> None:
    is_up = True

    def hook(name: BoundaryName, capability: str) -> None:
        if is_up and name == "session_freed":
            raise Killed

    async with OpenAIServer([Say("One."), Say("Two.")]) as server:
        async with open_shop(database.dsn, Shop(), server, hook=hook) as kernel:
            one = await session(kernel)
            first = (await put_in(kernel, one, "1", "k1")).action
            second = (await put_in(kernel, one, "2", "k2", on_busy=OnBusy.QUEUE)).action
            await dispatch(kernel)
            await until(lambda: len(server.requests) == 1, 20.0)
            await _until_ended(kernel, first.action_id)
        is_up = False
        async with open_shop(database.dsn, Shop(), server) as kernel:
            assert S.WAITING is (await read(kernel, second.action_id)).state
            assert (await get_session(kernel.journal, ALICE, one)).active_action_id is None
            # Who waits is before who comes.
            with pytest.raises(SessionBusy) as busy:
                await put_in(kernel, one, "3", "k3")
            assert second.action_id == busy.value.action_id
            await sweep_sessions(kernel.journal)
            await work_off(kernel)
            assert said("Two.") == output(await read(kernel, second.action_id))


async def test_a_run_whose_process_died_has_the_session_until_it_is_over(database: Database) -> None:
    script: list[Step] = [Stall(60.0), Say("One."), Say("Two.")]
    async with OpenAIServer(script) as server:
        async with open_shop(database.dsn, Shop(), server) as kernel:
            one = await session(kernel)
            first = (await put_in(kernel, one, "1", "k1")).action
            await dispatch(kernel)
            await until(lambda: len(server.requests) == 1, 20.0)
            await declare_dead(kernel)
        async with open_shop(database.dsn, Shop(), server) as kernel:
            with pytest.raises(SessionBusy):
                await put_in(kernel, one, "2", "k2")
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            assert said("One.") == output(await read(kernel, first.action_id))
            assert said("Two.") == output(await said_in(kernel, one, "2", "k2"))


async def test_only_runs_of_the_sessions_agent_are_in_it_and_one_for_people_is_not_queued(
    database: Database,
) -> None:
    shop = Shop()
    shop.app.agent("shop.asked", model="test", tools=(), approval="1 of role:finance")
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, shop, server) as kernel:
        one, bound = await session(kernel), await session(kernel, agent="shop.helper")
        for session_id, agent, value in (
            (one, "shop.count", {"order": "A-1"}),
            (bound, "shop.asked", ASKED),
        ):
            with pytest.raises(MalformedRequest):
                await put(kernel, agent, value, "k", session=SessionUse(session_id=session_id))
        asked = (await put_in(kernel, one, "Hi.", "k1", agent="shop.asked")).action
        assert (S.WAITING, "APPROVAL") == (asked.state, asked.cause)
        with pytest.raises(SessionBusy):
            await put_in(kernel, one, "Hi.", "k2")
        assert S.WAITING is (await put_in(kernel, one, "Hi.", "k3", on_busy=OnBusy.QUEUE)).action.state
        with pytest.raises(SessionBusy, match="people have to say yes to this one before it begins") as busy:
            await put_in(kernel, one, "Hi.", "k4", agent="shop.asked", on_busy=OnBusy.QUEUE)
        assert "needs_approval" == busy.value.problem


async def test_a_session_is_begun_once_for_each_key(database: Database) -> None:
    async with OpenAIServer([]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        wanted = NewSession(title="Help", idempotency_key="s1")
        made = await asyncio.gather(*(create_session(kernel.journal, ALICE, wanted) for _ in range(3)))
        assert 1 == len({each.session_id for each in made})
        for other in (replace(wanted, title="Other"), replace(wanted, idle_seconds=60.5)):
            with pytest.raises(IdempotencyConflict):
                await create_session(kernel.journal, ALICE, other)


async def test_nobody_has_more_sessions_open_than_he_may(database: Database) -> None:
    clock = FixedClock(datetime.now(UTC))
    async with OpenAIServer([]) as server, open_shop(database.dsn, Shop(), server, clock=clock) as kernel:

        async def make(caller: Caller = ALICE, **wanted: Any) -> str:
            new = NewSession(**{"idle_seconds": 60.0, **wanted})
            return (await create_session(kernel.journal, caller, new, open_max=2)).session_id

        first, _ = await make(), await make(idempotency_key="s")
        for key in ("", "another"):
            with pytest.raises(
                QuotaExceeded, match="You have 2 sessions open, and may have no more; close some"
            ):
                await make(idempotency_key=key)
        # What is there already is told, and others have their own.
        await make(idempotency_key="s")
        await make(BOB)
        await make(EVE)
        await close_session(kernel, ALICE, first, cancel=False)
        await make()
        with pytest.raises(QuotaExceeded):
            await make()
        # Nobody has noted yet that they were idle for their time.
        clock.advance(timedelta(seconds=60))
        await make()


async def test_a_message_of_one_session_is_none_of_another(database: Database) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    message = Message(message_id="m", time_us=int(now.timestamp() * 1_000_000))
    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server, clock=FixedClock(now)) as kernel,
    ):

        async def sent(session_id: str) -> Submitted:
            use = SessionUse(session_id=session_id)
            call = call_of("shop.helper", ASKED, "k", session=use)
            return await submit(kernel, call._replace(message=message), Submission())

        one, other = await session(kernel), await session(kernel)
        first = await sent(one)
        assert (first.action.action_id, True) == ((again := await sent(one)).action.action_id, again.attached)
        with pytest.raises(MessageReplayed):
            await sent(other)


async def test_who_waits_in_a_session_that_was_closed_never_runs_whatever_died(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise StoreUnavailable(detail="the process ends here")

    script = [Say("One."), Say("Two.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        first = (await put_in(kernel, one, "1", "k1")).action
        waiting = [
            (await put_in(kernel, one, text, text, on_busy=OnBusy.QUEUE)).action.action_id for text in "23"
        ]
        monkeypatch.setattr(admission, "_cancel_before", dies)
        with pytest.raises(StoreUnavailable):
            await close_session(kernel, ALICE, one, cancel=True)
        await sweep_sessions(kernel.journal)
        assert first.action_id == (await get_session(kernel.journal, ALICE, one)).active_action_id
        await work_off(kernel)
        await close_unwanted(kernel.journal)
        ended = [(await read(kernel, each)).state for each in (first.action_id, *waiting)]
        assert ([S.CANCELLED] * 3, 0) == (ended, len(server.requests))


async def test_a_session_that_somebody_holds_keeps_no_other_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: object) -> None:
        return None

    async with OpenAIServer([]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        waiting = {}
        # Whoever ends the first does not come to pass the turn on.
        monkeypatch.setattr(session_runs, "find_passed", nobody)
        for number in range(2):
            one = await session(kernel)
            first = (await put_in(kernel, one, "1", f"a{number}")).action
            second = (await put_in(kernel, one, "2", f"b{number}", on_busy=OnBusy.QUEUE)).action
            await cancel_action(kernel.engine, ALICE, first.action_id, "enough")
            waiting[one] = second.action_id

        async def states() -> list[ActionState]:
            return [(await read(kernel, action_id)).state for action_id in waiting.values()]

        async with kernel.journal.pool.tx() as other:
            await sessions.lock(other, "acme", next(iter(waiting)), subject=None, now=None)
            assert not await sweep_sessions(kernel.journal)
            assert [S.WAITING, S.QUEUED] == await states()
        await sweep_sessions(kernel.journal)
        assert [S.QUEUED, S.QUEUED] == await states()


async def _put_or_error(kernel: Kernel, session_id: str, key: str) -> Submitted | PlacetError:
    try:
        return await put_in(kernel, session_id, "Hi.", key)
    except PlacetError as error:
        return error


async def _until_ended(kernel: Kernel, action_id: str) -> None:
    async with asyncio.timeout(20.0):
        while (await read(kernel, action_id)).settle_time_us is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_redrive_and_another_run_at_once_never_both_have_the_session(database: Database) -> None:
    script: dict[str, list[Step]] = {"": [Fail(400), Say("Never.")]}
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        for number in range(4):
            one = await session(kernel)
            failed = await said_in(kernel, one, str(number), f"f{number}")
            assert S.FAILED is failed.state
            rule, other = await asyncio.gather(
                again(kernel, failed.action_id),
                put_in(kernel, one, "2", f"o{number}"),
                return_exceptions=True,
            )
            assert (rule == "") == isinstance(other, SessionBusy), (rule, other)
            stood = await read(kernel, failed.action_id)
            assert (rule == "") == (stood.state is S.QUEUED)
