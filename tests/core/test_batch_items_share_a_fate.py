"""What is wrong with one item of a batch is told of that one alone; what is right is stored, and once by its key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from placet_server.core.admission.submit import Submitted
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.kernel import Kernel
from placet_server.model.action import OnDuplicate, Submission
from placet_server.model.errors import PlacetError, StoreUnavailable
from placet_server.store.batch_item import SubmissionRow, Written
from tests.core.kernels import QUEUE, call_of, declare_dead, open_kernel, places, put, states, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database

Item = tuple[Any, Submission]


def item(
    value: Any = None,
    key: str = "",
    *,
    capability: str = "work.read",
    delay: float | None = None,
    **options: Any,
) -> Item:
    call = call_of(capability, {} if value is None else value, key, **options)
    return call, Submission(delay_seconds=delay)


def unsafe(key: str, order: str = "1", **options: Any) -> Item:
    return item({"order": order}, key, capability="work.unsafe", **options)


def told(results: list[Submitted | PlacetError]) -> list[str]:
    return [
        each.reason if isinstance(each, PlacetError) else "attached" if each.attached else "stored"
        for each in results
    ]


def ids(results: list[Submitted | PlacetError]) -> list[str]:
    return [each.action.action_id for each in results if isinstance(each, Submitted)]


async def test_each_item_has_its_own_answer_in_its_place(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        broken = call_of("work.read", {})
        broken = broken._replace(invocation=type(broken.invocation)(capability="work.read", input_json="{"))
        results = await submit_batch(
            kernel,
            [
                item(),
                item({"order": 1}),
                (broken, Submission()),
                item(capability="work.unsafe"),
                item(capability="work.none"),
                item(delay=600.0),
                unsafe("k"),
            ],
        )
        assert [
            "stored",
            "INPUT_SCHEMA_VIOLATION",
            "MALFORMED_JSON",
            "IDEMPOTENCY_KEY_REQUIRED",
            "CAPABILITY_NOT_FOUND",
            "stored",
            "stored",
        ] == told(results)
        assert 3 == len(set(ids(results)))
        assert [ids(results)[1]] == (await places(kernel))["queue_delayed"]
        await work_off(kernel)
        assert ["QUEUED", "SUCCEEDED", "SUCCEEDED"] == sorted(await states(kernel))


async def test_a_key_twice_in_a_batch_is_one_action_or_a_conflict(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        batch = [
            unsafe("k"),
            unsafe("other"),
            unsafe("k"),
            unsafe("k", order="2"),
            unsafe("k", on_duplicate=OnDuplicate.REFUSE),
            unsafe("k"),
        ]
        results = await submit_batch(kernel, batch)
        expected = ["stored", "stored", "attached", "IDEMPOTENCY_CONFLICT", "DUPLICATE_REFUSED", "attached"]
        assert expected == told(results)
        first, other, *attached = ids(results)
        assert {first} == set(attached) != {other}
        # A resend after a lost reply finds what the first one stored, item by item.
        again = await submit_batch(kernel, batch)
        assert ["attached", "attached", *expected[2:]] == told(again)
        assert ids(results) == ids(again)
        await work_off(kernel)
        assert [1, 1] == shop.attempts


async def test_an_item_that_meets_a_foreign_input_says_nothing_of_the_next(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        held = await put(kernel, "work.unsafe", {"order": "1"}, "k")
        results = await submit_batch(kernel, [unsafe("k", order="2"), unsafe("k"), unsafe("k", order="2")])
        assert ["IDEMPOTENCY_CONFLICT", "attached", "IDEMPOTENCY_CONFLICT"] == told(results)
        assert [held.action.action_id] == ids(results)


async def test_two_servers_with_the_same_batch_store_it_once(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as other:
        batch = [unsafe(f"k{number}") for number in range(60)]
        answers = await asyncio.gather(*(submit_batch(kernel, batch) for kernel in (one, other) * 2))
        assert 1 == len({tuple(ids(answer)) for answer in answers})
        assert 60 == sum(told(answer).count("stored") for answer in answers)


async def test_five_hundred_items_are_stored_in_as_few_statements_as_they_fit_into(
    database: Database,
) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        sizes: list[int] = []
        kernel.journal.writer._observe = lambda count, _: sizes.append(count)
        results = await submit_batch(kernel, [unsafe(f"k{number % 499}") for number in range(500)])
        assert ["stored"] * 499 + ["attached"] == told(results)
        assert (499, 2) == (sum(sizes), len(sizes))
        assert 499 == len(await states(kernel))


@pytest.mark.parametrize("count", [1, 300])
async def test_a_store_that_is_away_fails_all_of_it_alike(database: Database, count: int) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        _answering(kernel, StoreUnavailable(detail="away"))
        batch = [unsafe(f"k{number % 5}") for number in range(count)] + [item(), item({"order": 1})]
        results = await submit_batch(kernel, batch)
        assert ["STORE_UNAVAILABLE"] * (count + 1) + ["INPUT_SCHEMA_VIOLATION"] == told(results)


async def test_a_fault_with_one_row_is_not_the_others(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        _answering(kernel, RuntimeError("this row"), only="k1")
        results = await submit_batch(kernel, [unsafe("k0"), unsafe("k1"), unsafe("k2")])
        assert ["stored", "INTERNAL", "stored"] == told(results)


async def test_a_dead_or_leaving_server_stores_none_of_it(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        await declare_dead(kernel)
        assert ["DRAINING"] * 3 == told(await submit_batch(kernel, [item(), unsafe("k"), unsafe("k")]))
        kernel.start_draining()
        assert ["DRAINING"] * 2 == told(await submit_batch(kernel, [item(), unsafe("k")]))
        assert [] == await states(kernel)


async def test_of_a_batch_that_nobody_waits_for_any_more_nothing_is_left_to_be_written(
    database: Database,
) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        queued: list[asyncio.Future[Written | None]] = []
        all_queued = asyncio.Event()

        def submit(row: SubmissionRow) -> asyncio.Future[Written | None]:
            queued.append(asyncio.get_running_loop().create_future())
            if len(queued) == 3:
                all_queued.set()
            return queued[-1]

        writer: Any = kernel.journal.writer
        writer.submit = submit
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            batch = tasks.create_task(submit_batch(kernel, [item(), unsafe("k0"), unsafe("k1")]))
            await all_queued.wait()
            batch.cancel()
        assert [True] * 3 == [future.cancelled() for future in queued]


def _answering(kernel: Kernel, error: Exception, only: str = "") -> None:
    writer: Any = kernel.journal.writer
    real = writer.submit

    def submit(row: SubmissionRow) -> asyncio.Future[Any]:
        if only and row["idempotency_key"] != only:
            answer: asyncio.Future[Any] = real(row)
            return answer
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed

    writer.submit = submit
