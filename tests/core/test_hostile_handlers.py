"""Handlers that return, raise or say what they must not: one typed ending each, and nothing left running."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Cancelled, Failure
from placet_server.core.execution.attempt import OPERATION_LENGTH_MAX
from placet_server.core.publication.lane import CHUNK_BYTES_MAX
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.read import list_actions
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.ending_errors import EffectAmbiguous, HandlerFailed, OutputSchemaViolation
from placet_server.model.errors import MalformedRequest
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import ActionQuery
from tests.core.kernels import ALICE, declare_dead, only_action, open_kernel, run, states, until
from tests.core.workshop import Workshop
from tests.postgres import Database


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


async def ending(database: Database, shop: Workshop, capability: str = "work.unsafe") -> Action:
    """How the action stands once its call has ended, whatever that raised."""
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, capability, {}, "k", time_left_seconds=5.0))
        await asyncio.gather(call, return_exceptions=True)
        assert 0 == len(kernel.engine.runs)
        assert set() == kernel.engine.runs.abandoned
        return await only_action(kernel)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: object(),
        lambda: math.nan,
        lambda: math.inf,
        lambda: 2**60,
        lambda: {"a\x00b": 1},
        lambda: {"deep": [{"a\x00\ud800" + "x" * 5000: "\ud800"}]},
        lambda: "\ud800",
        lambda: nested(200),
        lambda: endless(),
        lambda: "x" * (2 * 1024 * 1024),
    ],
)
async def test_output_that_is_no_json_is_a_failure_whose_effect_is_done(
    database: Database, shop: Workshop, make: Callable[[], Any]
) -> None:
    async def returns(context: Context) -> Any:
        return make()

    shop.script = returns
    end = await ending(database, shop)
    assert (ActionState.FAILED, "OUTPUT_SCHEMA_VIOLATION", EffectState.DONE) == (
        end.state,
        end.reason,
        end.effect,
    )
    assert len(end.message) <= 4096
    assert len(end.cause or "") <= 1024


async def test_output_that_breaks_its_schema_names_the_place(database: Database) -> None:
    app = App("typed")

    @app.tool("typed.count", "read", output_schema={"type": "object", "required": ["count"]})
    async def count() -> Any:
        return {"total": 1}

    async with open_kernel(database.dsn, app) as kernel:
        with pytest.raises(OutputSchemaViolation):
            await run(kernel, "typed.count", {})


class Odd(BaseException):
    """Neither an Exception nor anything else that is known."""


@pytest.mark.parametrize(
    "error",
    [
        Odd,
        SystemExit,
        KeyboardInterrupt,
        StopIteration,
        StopAsyncIteration,
        GeneratorExit,
        Cancelled,
        MemoryError,
        RecursionError,
    ],
)
@pytest.mark.parametrize(
    ("capability", "state"), [("work.read", ActionState.FAILED), ("work.unsafe", ActionState.AMBIGUOUS)]
)
async def test_whatever_is_raised_ends_the_action_and_nothing_else(
    database: Database,
    shop: Workshop,
    error: type[BaseException],
    capability: str,
    state: ActionState,
) -> None:
    async def raises(context: Context) -> None:
        raise error()

    shop.script = raises
    assert state is (await ending(database, shop, capability)).state


NOT_DONE, DONE, UNSAID = Failure("a", effect="not_done"), Failure("b", effect="done"), Failure("c")


@pytest.mark.parametrize(
    ("errors", "state", "code"),
    [
        ([NOT_DONE], ActionState.FAILED, "a"),
        ([NOT_DONE, ExceptionGroup("", [DONE])], ActionState.FAILED, "b"),
        ([NOT_DONE, UNSAID, DONE], ActionState.AMBIGUOUS, ""),
        ([NOT_DONE, ValueError()], ActionState.AMBIGUOUS, ""),
    ],
)
async def test_a_group_of_failures_says_what_the_least_knowing_of_them_says(
    database: Database, shop: Workshop, errors: list[Exception], state: ActionState, code: str
) -> None:
    async def raises(context: Context) -> None:
        raise ExceptionGroup("as a TaskGroup does", errors)

    shop.script = raises
    ended = await ending(database, shop)
    assert (state, code) == (ended.state, ended.failure_code)


async def test_a_handler_that_cancels_its_own_task_and_returns_is_settled(
    database: Database, shop: Workshop
) -> None:
    async def cancels_itself(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    shop.script = cancels_itself
    assert ActionState.SUCCEEDED is (await ending(database, shop)).state


@pytest.mark.parametrize(
    "error", [Odd, SystemExit, StopIteration, GeneratorExit, Cancelled, asyncio.CancelledError]
)
async def test_whatever_a_thread_raises_ends_the_action_and_frees_the_slot(
    database: Database, error: type[BaseException]
) -> None:
    app = App("plain")

    @app.tool("plain.raise", "read")
    def raises() -> None:
        raise error()

    async with open_kernel(database.dsn, app) as kernel:
        with pytest.raises(HandlerFailed):
            await asyncio.wait_for(run(kernel, "plain.raise", {}, time_left_seconds=None), 5)
        assert 0 == kernel.engine.threads._reserved
        assert ["FAILED"] == await states(kernel)


@pytest.mark.parametrize(
    "failure",
    [
        Failure("code\x00", "message \x00 \ud800", effect="not_done"),
        Failure("c", "m" * 100_000, effect="not_done"),
        Failure("c", effect="not_done", category="temporary", retry_delay=math.inf),
        Failure("c", effect="not_done", category="temporary", retry_delay=math.nan),
        Failure("c", effect="not_done", category="temporary", retry_delay=-1.0),
        Failure("c", effect="not_done", category="temporary", retry_delay=1e300),
    ],
)
async def test_a_failure_with_hostile_fields_is_stored_all_the_same(
    database: Database, shop: Workshop, failure: Failure
) -> None:
    async def fails(context: Context) -> None:
        raise failure

    shop.script = fails
    end = await ending(database, shop)
    assert (ActionState.FAILED, EffectState.NOT_DONE) == (end.state, end.effect)
    assert len(end.message) <= 4096
    assert end.retry_delay_seconds is None or 0 <= end.retry_delay_seconds <= 86_400
    assert "\x00" not in end.message + end.failure_code
    assert outcome_of(end).failure_code


async def test_an_ending_that_the_store_rejects_is_unanswered_not_lost(
    database: Database, shop: Workshop
) -> None:
    async def fails(context: Context) -> None:
        failure = Failure("c", effect="not_done")
        failure.retry_delay_seconds = "soon"  # type: ignore[assignment]
        raise failure

    shop.script = fails
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(EffectAmbiguous):
            await asyncio.wait_for(run(kernel, "work.unsafe", {}, "k", time_left_seconds=None), 15)


@pytest.mark.parametrize("operation", ["", "x" * (OPERATION_LENGTH_MAX + 1), "nul\x00", "\ud800"])
async def test_a_checkpoint_that_cannot_be_stored_is_refused_and_the_lease_kept(
    database: Database, shop: Workshop, operation: str
) -> None:
    async def checks(context: Context) -> str:
        with pytest.raises(ValueError, match="operation"):
            await context.checkpoint(operation)
        await context.checkpoint("op", {"fine": True})
        return "done"

    shop.script = checks
    end = await ending(database, shop)
    assert (ActionState.SUCCEEDED, "op", '{"fine":true}') == (
        end.state,
        end.provider_operation,
        end.provider_cursor_json,
    )


async def test_checkpoints_at_once_are_all_stored_in_order(database: Database, shop: Workshop) -> None:
    async def checks(context: Context) -> str:
        await asyncio.gather(*(context.checkpoint(f"op-{number}", number) for number in range(20)))
        return "done"

    shop.script = checks
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.unsafe", {}, "k")
        found = [e async for e in watch_action(kernel.journal, ALICE, done.action.action_id, "")]
    stored = [
        e.body["provider_operation"]
        for e in found
        if isinstance(e, Event) and e.type == "effect_checkpointed"
    ]
    assert [f"op-{number}" for number in range(20)] == stored


async def test_a_checkpoint_marks_that_the_provider_was_touched(database: Database, shop: Workshop) -> None:
    shop.touch = False

    async def checks(context: Context) -> None:
        await context.checkpoint("op")
        raise ConnectionError

    shop.script = checks
    assert ActionState.AMBIGUOUS is (await ending(database, shop, "work.unsafe_marked")).state


async def test_marks_at_once_are_one_event(database: Database, shop: Workshop) -> None:
    async def marks(context: Context) -> int:
        return len(set(await asyncio.gather(*(context.effect() for _ in range(10)))))

    shop.touch, shop.script = False, marks
    end = await ending(database, shop, "work.unsafe_marked")
    assert ("1", 3) == (end.output_json, end.sequence)


@pytest.mark.parametrize(
    "data", ["x" * (CHUNK_BYTES_MAX + 1), b"x" * (CHUNK_BYTES_MAX + 1), "é" * CHUNK_BYTES_MAX]
)
async def test_a_chunk_too_large_is_refused_and_the_work_goes_on(
    database: Database, shop: Workshop, data: str | bytes
) -> None:
    async def speaks(context: Context) -> str:
        with pytest.raises(ValueError, match="chunk"):
            await context.chunk(data)
        await context.chunk("small")
        return "done"

    shop.script = speaks
    assert ActionState.SUCCEEDED is (await ending(database, shop)).state


async def test_odd_but_legal_chunks_arrive_as_they_were_said(database: Database, shop: Workshop) -> None:
    said: list[Any] = ["", "nul \x00 ünï 🎉", b"\x00\xff", {"a": [1, None]}, "x" * CHUNK_BYTES_MAX]

    async def speaks(context: Context) -> str:
        for data in said:
            await context.chunk(data)
        await context.progress("nul \x00", 0.5)
        return "done"

    shop.script = speaks
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.read", {})
        found = [e async for e in watch_action(kernel.journal, ALICE, done.action.action_id, "")]
    bodies = [e.body for e in found if isinstance(e, Event) and e.number]
    assert [
        {"text": ""},
        {"text": said[1]},
        {"base64": "AP8="},
        {"json": '{"a":[1,null]}'},
        {"text": said[4]},
        {"message": "nul \x00", "fraction": 0.5},
    ] == bodies


@pytest.mark.parametrize("fraction", [-0.01, 1.01, math.nan, math.inf])
async def test_a_fraction_out_of_range_is_refused(
    database: Database, shop: Workshop, fraction: float
) -> None:
    async def reports(context: Context) -> str:
        with pytest.raises(ValueError, match="fraction"):
            await context.progress("half", fraction)
        return "done"

    shop.script = reports
    assert ActionState.SUCCEEDED is (await ending(database, shop)).state


@pytest.mark.parametrize("deed", ["effect", "checkpoint"])
async def test_a_handler_that_lost_its_lease_is_stopped_at_its_next_mark(
    database: Database, shop: Workshop, deed: str
) -> None:
    after: list[str] = []

    async def goes_on(context: Context) -> None:
        await shop.gate.wait()
        await (context.effect() if deed == "effect" else context.checkpoint("op"))
        after.append("touched")

    shop.touch, shop.script = False, goes_on
    async with open_kernel(database.dsn, shop.app) as survivor, open_kernel(database.dsn, shop.app) as old:
        call = asyncio.create_task(run(old, "work.idempotent_marked", {}, "k"))
        await shop.began.wait()
        await declare_dead(old)
        assert 1 == (await rescue(survivor.journal)).requeued
        ready = await only_action(survivor)
        shop.gate.set()
        await until(lambda: not len(old.engine.runs))
        assert ready == await only_action(survivor)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert [] == after


async def test_nothing_is_said_for_an_attempt_that_was_given_up(database: Database, shop: Workshop) -> None:
    async def talks(context: Context) -> str:
        await context.chunk("before")
        await shop.gate.wait()
        await context.chunk("after")
        return "late"

    shop.script = talks
    async with open_kernel(database.dsn, shop.app) as survivor, open_kernel(database.dsn, shop.app) as old:
        call = asyncio.create_task(run(old, "work.idempotent", {}, "k"))
        await shop.began.wait()
        await until(lambda: True)
        await declare_dead(old)
        await rescue(survivor.journal)
        shop.gate.set()
        await until(lambda: not len(old.engine.runs))
        async with survivor.journal.pool.connection() as connection:
            bodies = await connection.fetch("select body from lane_items")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert '{"text":"after"}' not in [row["body"] for row in bodies]


@pytest.mark.parametrize("mark", ["effect", "checkpoint"])
async def test_a_mark_under_way_when_the_handler_ends_counts(
    database: Database, shop: Workshop, mark: str
) -> None:
    """As in a gather, whose other half goes on: it has been told that the effect may begin."""
    shop.touch = False
    touched = asyncio.Event()
    left_behind: list[asyncio.Task[None]] = []

    async def ends_early(context: Context) -> None:
        async def touches() -> None:
            await (context.effect() if mark == "effect" else context.checkpoint("operation"))
            touched.set()

        left_behind.append(asyncio.create_task(touches()))
        await asyncio.sleep(0)
        raise RuntimeError

    shop.script = ends_early
    action = await ending(database, shop, "work.unsafe_marked")
    assert touched.is_set()
    assert (ActionState.AMBIGUOUS, EffectState.UNKNOWN) == (action.state, action.effect)


async def test_tasks_that_a_handler_left_behind_are_refused(database: Database, shop: Workshop) -> None:
    shop.touch = False
    refused: list[BaseException] = []
    left_behind: list[asyncio.Task[None]] = []

    async def leaves(context: Context) -> dict[str, str]:
        async def goes_on() -> None:
            await shop.gate.wait()
            for late in (
                lambda: context.chunk("late"),
                lambda: context.progress("late"),
                lambda: context.checkpoint("late"),
                lambda: context.effect(),
            ):
                try:
                    await late()
                except Cancelled as error:
                    refused.append(error)

        left_behind.append(asyncio.create_task(goes_on()))
        await context.chunk("early")
        return {"order": "1"}

    shop.script = leaves
    async with open_kernel(database.dsn, shop.app) as kernel:
        action = (await run(kernel, "work.unsafe_marked", {}, "k")).action
        seen = [item async for item in watch_action(kernel.journal, ALICE, action.action_id, "")]
        shop.gate.set()
        await asyncio.gather(*left_behind)
        seen_late = [item async for item in watch_action(kernel.journal, ALICE, action.action_id, "")]
    assert 4 == len(refused)
    assert seen == seen_late


@pytest.mark.parametrize(
    "options", [{"key": "nul\x00"}, {"labels": {"a": "\x00"}}, {"labels": {"\x00": "a"}}]
)
async def test_text_that_the_store_cannot_hold_is_refused_before_it(
    database: Database, shop: Workshop, options: dict[str, Any]
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        key = options.pop("key", "k")
        with pytest.raises(MalformedRequest):
            await run(kernel, "work.unsafe", {}, key, **options)
        with pytest.raises(MalformedRequest):
            await list_actions(kernel.journal, ALICE, ActionQuery(labels={"a": "\x00"}))
        assert [] == await states(kernel)


@pytest.mark.parametrize("subject", ["a:b,c", '"quoted"', "ünï 🎉", "back\\slash\nline", "' or 1=1 --"])
async def test_odd_subjects_and_keys_are_kept_apart_and_whole(
    database: Database, shop: Workshop, subject: str
) -> None:
    shop.gate.set()
    odd = Caller(tenant="acme", subject=subject, roles=(subject,), scopes=frozenset({subject}))
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.unsafe", {}, subject, caller=odd, labels={subject: subject})
        other = await run(kernel, "work.unsafe", {}, subject)
        found = await list_actions(
            kernel.journal, odd, ActionQuery(requester=subject, labels={subject: subject})
        )
    assert [done.action.action_id] == [action.action_id for action in found.actions]
    assert (subject, {subject: subject}) == (found.actions[0].requester.subject, found.actions[0].labels)
    assert done.action.action_id != other.action.action_id


async def test_a_whole_id_is_a_prefix_too(database: Database, shop: Workshop) -> None:
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        ids = [(await run(kernel, "work.read", {})).action.action_id for _ in range(3)]
        for length in (4, 13, 14, 23, 36):
            query = ActionQuery(action_id_prefix=ids[1][:length])
            found = [
                action.action_id for action in (await list_actions(kernel.journal, ALICE, query)).actions
            ]
            assert sorted((i for i in ids if i.startswith(ids[1][:length])), reverse=True) == found
