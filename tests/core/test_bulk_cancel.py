"""Ten thousand are cancelled and some begin all the same: because they are claimed meanwhile, or after a restart.

`PLACET_BULK` is how many there are."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from placet.context import Context
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.cancel_many import Cancelled, cancel_many
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import new_lease_id
from placet_server.core.publication.read import list_actions
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.action import Submission
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import ActionQuery
from placet_server.store import action as actions
from placet_server.store import event as events
from tests.core.family import family
from tests.core.kernels import (
    ALICE,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    let_children_stand_in_line,
    open_kernel,
    places,
    put,
    read,
    run,
    states,
    until,
    until_stored,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

COUNT = int(os.environ.get("PLACET_BULK", "2000"))
NOWHERE: dict[str, list[str]] = {"queue_ready": [], "queue_delayed": [], "dead_letters": []}

# Copies of the one action that there is, with their places in line and events.
COPY = """
with copied as (
    insert into actions (
        tenant, action_id, capability, version, contract_digest, effect_class, subject, caller, key_ttl, input,
        input_digest, labels, on_caller_gone, durability, create_time, effect_marked, attempts_max, state, attempt,
        ready_time, effect, effect_begun, sequence, receipt_digest, queue, priority)
    select
        a.tenant, gen_random_uuid(), a.capability, a.version, a.contract_digest, a.effect_class, a.subject, a.caller,
        a.key_ttl, a.input, a.input_digest, a.labels, a.on_caller_gone, a.durability, a.create_time, a.effect_marked,
        a.attempts_max, a.state, 0, a.ready_time, a.effect, false, 1, a.receipt_digest, a.queue, a.priority
    from actions as a, generate_series(2, $1::integer)
    returning *
),
told as (
    insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
    select tenant, action_id, 1, 'admitted', create_time, '{}', receipt_digest from copied
)
insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time)
select tenant, action_id, queue, capability, version, priority, ready_time from copied
"""
BEGUN_AFTERWARDS = """
select count(*)
from events as mark
join events as later using (tenant, action_id)
where mark.type = 'cancel_requested' and later.type = 'attempt_started' and later.sequence > mark.sequence
"""


async def cancel_all(
    kernel: Kernel, query: ActionQuery, *, caller: Caller = ALICE, look: bool = False
) -> list[Cancelled]:
    """Each page's."""
    pages, after = list[Cancelled](), ""
    while True:
        page = ActionQuery(
            queue=query.queue,
            labels=query.labels,
            states=query.states,
            capabilities=query.capabilities,
            page_size=1000,
            after_action_id=after,
        )
        pages.append(await cancel_many(kernel.engine, caller, page, "enough", validate_only=look))
        after = pages[-1].next_after_action_id
        if not after:
            return pages


def total(pages: list[Cancelled]) -> tuple[int, int, int]:
    return (
        sum(page.matched for page in pages),
        sum(page.marked for page in pages),
        sum(page.ended for page in pages),
    )


@pytest.mark.both_servers
async def test_nothing_begins_that_was_cancelled_with_thousands_while_servers_take_it(
    database: Database,
) -> None:
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as two,
    ):
        await put(one, "work.read", {}, place=Submission(queue="bulk"))
        async with one.journal.pool.connection(60) as connection:
            await connection.execute(COPY, COUNT)
        at_work = asyncio.create_task(work_off(two, 60))
        await shop.began.wait()
        pages = await cancel_all(one, ActionQuery(queue="bulk"))
        assert (COUNT - 1) // 1000 + 2 >= len(pages)
        await at_work
        async with one.journal.pool.connection() as connection:
            assert 0 == await connection.fetchval(BEGUN_AFTERWARDS)
    matched, marked, ended = total(pages)
    assert matched >= marked >= ended > 0
    ran = len(shop.attempts)
    # After a restart, too.
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as again:
        await work_off(again)
        assert ran == len(shop.attempts)
        assert {"CANCELLED", "SUCCEEDED"} >= set(await states(again))
        assert NOWHERE == await places(again)
        assert (0, 0, 0) == total(await cancel_all(again, ActionQuery(queue="bulk")))


async def test_a_filter_cancels_what_it_matches_and_no_one_elses(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        bulk = Submission(queue="bulk")
        mine = (await put(kernel, "work.unsafe", {}, "1", place=bulk, labels={"run": "a"})).action.action_id
        delayed = Submission(queue="bulk", delay_seconds=60.0)
        late = (await put(kernel, "work.read", {}, "2", place=delayed, labels={"run": "a"})).action.action_id
        other = (await put(kernel, "work.unsafe", {}, "3", place=bulk)).action.action_id
        theirs = await put(kernel, "work.unsafe", {}, "1", place=bulk, labels={"run": "a"}, caller=EVE)
        query = ActionQuery(labels={"run": "a"})
        assert [(2, 0, 0)] == [total([page]) for page in await cancel_all(kernel, query, look=True)]
        assert 3 * ["QUEUED"] == await states(kernel)
        assert (2, 2, 2) == total(await cancel_all(kernel, query))
        assert (1, 0, 0) == total(
            await cancel_all(kernel, ActionQuery(capabilities=("work.unsafe",)), look=True)
        )
        ended = [await read(kernel, action_id) for action_id in (mine, late)]
        left = [await read(kernel, other), await read(kernel, theirs.action.action_id, "evil")]
    assert 2 * [(ActionState.CANCELLED, "CANCELLED_BY_CALLER")] == [(a.state, a.reason) for a in ended]
    assert 2 * [(ActionState.QUEUED, None)] == [(a.state, a.cancel_requested_time_us) for a in left]


async def test_one_of_many_ends_as_one_alone_does(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.unsafe", {}, f"k{n}")).action.action_id for n in range(2)]
        await cancel_action(kernel.engine, ALICE, ids[0], "enough")
        assert (1, 1, 1) == total(await cancel_all(kernel, ActionQuery(capabilities=("work.unsafe",))))
        alone, one_of_many = [await read(kernel, action_id) for action_id in ids]
        async with kernel.journal.pool.connection() as connection:
            told = [await events.list_receipts(connection, "acme", action_id) for action_id in ids]
    differ = ("action_id", "idempotency_key", "receipt_digest", "lease_id")
    times = (
        "create_time_us",
        "ready_time_us",
        "cancel_requested_time_us",
        "settle_time_us",
        "key_expire_time_us",
    )
    blank = dict.fromkeys((*differ, *times), None)
    assert alone.changed(**blank) == one_of_many.changed(**blank)
    assert [(r.type, r.body) for r in told[0]][1:] == [(r.type, r.body) for r in told[1]][1:]


async def test_what_moved_since_it_was_read_is_not_touched(database: Database) -> None:
    """What decides is the row as the statement finds it, not as the list told it."""
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ended = (await run(kernel, "work.unsafe", {}, "ended")).action
        assert (0, 0, 0) == total(await cancel_all(kernel, ActionQuery(states=(ActionState.SUCCEEDED,))))
        hers = (await put(kernel, "work.unsafe", {}, "hers", caller=EVE)).action
        marked = (await put(kernel, "work.unsafe", {}, "marked")).action
        waits = (await put(kernel, "work.unsafe", {}, "waits")).action
        all_of_them = [each.action_id for each in (ended, hers, marked, waits)]
        async with kernel.journal.pool.connection() as connection:
            await actions.request_cancel(
                connection, tenant="acme", action_id=marked.action_id, event_body="{}", now=None
            )
            marks = await actions.request_cancel_many(
                connection, tenant="acme", action_ids=all_of_them, event_body="{}", now=None
            )
            assert {waits.action_id} == set(marks)
            closing = {"state": "CANCELLED", "reason": "CANCELLED_BY_CALLER", "cause": None}
            closing |= {"event_type": "settled", "event_body": "{}", "lease_id": new_lease_id()}

            async def close(action_id: str, sequence: int) -> set[str]:
                item = cast(actions.Closing, {**closing, "action_id": action_id, "sequence": sequence})
                return await actions.close_many(connection, tenant="acme", items=[item], now=None)

            assert set() == await close(waits.action_id, waits.sequence)
            assert set() == await close(hers.action_id, hers.sequence)
            # The sweep closes what nobody else does.
            due = await connection.fetch("select action_id::text from queue_ready where expire_time <= now()")
            assert {marked.action_id, waits.action_id} == {row[0] for row in due}
            assert {waits.action_id} == await close(waits.action_id, marks[waits.action_id].sequence)
        assert sorted([hers.action_id, marked.action_id]) == (await places(kernel))["queue_ready"]
        assert ["SUCCEEDED", "QUEUED", "CANCELLED"] == await states(kernel)


async def test_what_the_sweep_is_first_to_end_is_counted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        for key in "ab":
            await put(kernel, "work.unsafe", {}, key)
        mark = actions.request_cancel_many

        async def marked_and_swept(*arguments: Any, **options: Any) -> Any:
            marks = await mark(*arguments, **options)
            assert 2 == await close_unwanted(kernel.journal)
            return marks

        monkeypatch.setattr(actions, "request_cancel_many", marked_and_swept)
        assert (2, 2, 2) == total(await cancel_all(kernel, ActionQuery()))
        assert 2 * ["CANCELLED"] == await states(kernel)


async def test_an_effect_that_came_in_doubt_since_it_was_read_is_not_called_undone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action = (await put(kernel, "work.idempotent", {}, "k")).action

        async def listed(*given: Any) -> Any:
            page = await list_actions(*given)
            async with kernel.journal.pool.connection() as connection:
                await connection.execute(
                    "update actions set sequence = sequence + 1, attempt = 1, effect = 'UNKNOWN',"
                    " effect_unknown = true where action_id = $1",
                    action.action_id,
                )
            return page

        monkeypatch.setattr("placet_server.core.execution.cancel_many.list_actions", listed)
        assert (1, 1, 0) == total(await cancel_all(kernel, ActionQuery()))
        assert ActionState.QUEUED is (await read(kernel, action.action_id)).state
        await close_unwanted(kernel.journal)
        assert ActionState.AMBIGUOUS is (await read(kernel, action.action_id)).state


async def test_what_is_below_one_of_many_is_cancelled_too(database: Database) -> None:
    async def ship(context: Context) -> Any:
        return await context.call("part", "work.read", {})

    shop = family(ship)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        let_children_stand_in_line(kernel)
        await put(kernel, "work.idempotent", {}, "k")
        await dispatch(kernel)
        await shop.began.wait()

        async def is_child_stored() -> bool:
            return len(await states(other)) == 2

        await until_stored(is_child_stored)
        await declare_dead(kernel)
        await rescue(other.journal)
        only = ActionQuery(capabilities=("work.idempotent",))
        assert (1, 1) == total(await cancel_all(other, only))[:2]
        assert "CANCELLED" == (await states(other))[1]


async def test_what_runs_is_stopped_here_and_elsewhere(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        calls = [
            asyncio.create_task(run(kernel, "work.read", {}, f"k{n}")) for n, kernel in enumerate((one, two))
        ]
        await until(lambda: shop.at_once == 2)
        assert (2, 2, 0) == total(await cancel_all(one, ActionQuery(states=(ActionState.RUNNING,))))
        await asyncio.wait(calls[:1])
        assert ["CANCELLED", "RUNNING"] == sorted(await states(one))
        shop.gate.set()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_what_somebody_holds_is_marked_alone(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.read", {}, f"k{n}")).action.action_id for n in range(3)]
        async with kernel.journal.pool.tx() as holder:
            await holder.execute("select from actions where action_id = $1 for update", ids[1])
            call = asyncio.create_task(cancel_all(kernel, ActionQuery(capabilities=("work.read",))))
            async with asyncio.timeout(10):
                while ["CANCELLED", "CANCELLED", "QUEUED"] != sorted(await states(kernel)):
                    pass
        assert (3, 3, 3) == total(await call)
        shop.gate.set()
        await dispatch(kernel)
        assert [] == shop.attempts
