"""A run goes on from what it remembers: what the model has answered it is never asked again, and no call is made twice,
whoever runs it and wherever it was cut off. The model's ledger is looked at first.
"""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from placet_server.core.execution.ending import Ended, Postponed
from placet_server.core.execution.stretch import Stretch
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.entry import Answered, Compacted, EntryType, Requested
from placet_server.model.entry_text import entry_of, messages_of, of_text
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.usage import Counters
from placet_server.store import event as events
from placet_server.store import queries
from placet_server.store import run as runs
from placet_server.store.clock import FixedClock
from tests.core.agents import spent as spent_by
from tests.core.kernels import (
    ALICE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.parking import parked, steps, wakes
from tests.core.people import vote
from tests.core.scripted import ASKED, BUDGET, Scripted, age, bodies, entries, opened
from tests.core.test_lost_replies import make_lossy, once
from tests.core.test_retention import DAY, START, clean_all
from tests.examples import LONG
from tests.postgres import Database

# What a store of JSON would change or refuse.
STRANGE = '{"b":"\u2028\\u0000\\ud800","b":1.0e0}'
TOO_LONG_MS = 10**9
NO_ID = "00000000-0000-0000-0000-000000000000"
ENDED = '{"parts":[{"text":"over"}]}'
TWO_CALLS = (["plan.quick", "plan.find"], ["plan.quick"])
LIFE = [
    (1, "opened", 0, 1),
    (2, "requested", 1, 1),
    (3, "answered", 1, 1),
    (4, "requested", 2, 1),
    (5, "answered", 2, 1),
    (6, "requested", 3, 1),
    (7, "answered", 3, 1),
]


async def types(kernel: Kernel, action: Action) -> list[str]:
    """Of its events, whose receipts verify."""
    async with kernel.journal.pool.connection() as connection:
        chain = await events.list_receipts(connection, "acme", action.action_id)
    receipt = b""
    for link in chain:
        said = (action.action_id, link.sequence, link.type, link.create_time_us, link.body)
        receipt = hashlib.sha256(receipt + "\n".join(map(str, said)).encode()).digest()
        assert receipt.hex() == link.receipt
    assert action.receipt_digest == receipt.hex()
    return [link.type for link in chain]


async def test_a_run_is_its_entries_its_counters_and_their_events(database: Database) -> None:
    script = Scripted(*TWO_CALLS)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        assert [1, 2, 3] == script.requests
        assert (ActionState.SUCCEEDED, EffectState.DONE) == (ended.state, ended.effect)
        assert {"parts": [{"text": "over"}]} == output(ended)
        assert LIFE == await entries(kernel, asked.action_id)
        async with kernel.journal.pool.connection() as connection:
            digests = await connection.fetch(
                "select encode(digest, 'hex') as stored, sha256(convert_to(body, 'UTF8')) = digest as is_its "
                "from run_entries order by ordinal"
            )
            said = await connection.fetch(
                "select body from events where body like '%digest%' order by sequence"
            )
        chained = [
            json.loads(event["body"])["digest"]
            for event in said
            if "lane_number" in json.loads(event["body"])
        ]
        assert [(digest, True) for digest in chained] == [
            (each["stored"], each["is_its"]) for each in digests
        ]
        # Whose ends it has told wake nobody.
        assert 0 == await wakes(kernel)
        told = [["call-1-1", '"done 1-1"'], ["call-1-2", '"found 1-2"'], ["call-2-1", '"done 2-1"']]
        assert [text for _, text in told] == [text for turn in (1, 2) for text in script.told[turn]]
        async with kernel.journal.pool.connection() as connection:
            stored = (await runs.map_by_ids(connection, "acme", [asked.action_id]))[asked.action_id]
        spent = Counters(
            turns=3, requests=3, calls=3, input_tokens=30, output_tokens=15, cost_micros=9, active_ms=49
        )
        assert (7, "test:one", BUDGET, spent) == (
            stored.ordinal,
            stored.model,
            stored.budget,
            stored.counters,
        )
        turns = ["turn_requested", "turn_answered"] * 3
        begun = ["admitted", "attempt_started", "run_opened", *turns[:2], "effect_started", *turns[2:]]
        assert [*begun, "settled"] == await types(kernel, ended)
        # Asked again it is told, and the model is not.
        again = await run(kernel, "plan.agent", ASKED, "k")
        assert (True, output(ended), [1, 2, 3]) == (again.attached, output(again.action), script.requests)


async def test_a_turn_costs_three_writes_and_a_run_six_more(database: Database) -> None:
    script = Scripted(["plan.find"])
    writes: list[int] = []
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        # Of the first one what it calls has yet to be looked up.
        for number, turns in enumerate((1, 0, 2, 4)):
            script.turns = [["plan.find"]] * turns
            asked = (await put(kernel, "plan.agent", ASKED, f"k{number}")).action
            await work_off(kernel)
            async with kernel.journal.pool.connection() as connection:
                writes.append(
                    await connection.fetchval(
                        "select count(distinct written_xid) from events "
                        "where action_id = $1 or action_id in (select action_id from actions where parent_id = $1)",
                        asked.action_id,
                    )
                )
    # Stored, claimed, opened and settled, and the last turn asked for and answered; each other turn is asked for, is
    # answered with its call, which runs at once, and that is settled.
    assert [6 + 3 * turns for turns in (0, 2, 4)] == writes[1:]


async def test_a_run_that_waits_for_people_asks_nothing_again(database: Database) -> None:
    script = Scripted(["plan.quick", "plan.paid"])
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        waiting = await parked(kernel, asked.action_id)
        assert ([1], 1) == (script.requests, script.starts)
        shown = await with_family_waits(kernel.journal, waiting)
        assert ["turn/1/call/2"] == [wait.step_path for wait in shown.waits]
        await vote(kernel, shown.waits[0].approval_id)
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        assert ([1, 2], 2, 1) == (script.requests, script.starts, ended.attempt)
        assert (["1-1"], ["1-2"]) == (script.done, script.paid)
        assert ['"done 1-1"', '"paid 1-2"'] == script.told[1]
        assert {1} == {attempt for *_, attempt in await entries(kernel, asked.action_id)}
        watched = watch_action(kernel.journal, ALICE, asked.action_id, "")
        names = [e.type.value async for e in watched if isinstance(e, Event)]
        assert ["parked", "requeued", "resumed", "turn_requested", "turn_answered", "settled"] == names[-6:]


CUT = ("run_opened", "turn_requested", "turn_sent", "turn_received", "turn_answered", "calls_admitted")


async def test_a_run_that_is_cut_off_anywhere_is_as_one_that_was_not(database: Database) -> None:
    whole = Scripted(*TWO_CALLS)
    async with open_kernel(
        database.dsn, whole.app, queue=QUEUE, programs=whole, boundary_hook=whole.reached
    ) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "whole")).action
        await work_off(kernel)
        undisturbed = await bodies(kernel, asked.action_id, "answered")
    cuts = [cut for cut in whole.log if cut[0] in (*CUT, "call_told")]
    assert 1 + 4 * 3 + 2 + 3 == len(cuts)
    # Each boundary once; each time that it is reached, if there is time for that.
    for cut in cuts if LONG else {name: (name, nth) for name, nth in cuts if nth < 3}.values():
        await _cut_off(database, cut, undisturbed)


async def _cut_off(database: Database, cut: tuple[str, int], undisturbed: list[str]) -> None:
    script = Scripted(*TWO_CALLS)
    script.dies_at = cut
    async with open_kernel(
        database.dsn, script.app, queue=QUEUE, programs=script, boundary_hook=script.reached
    ) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, f"{cut}")).action
        # Its steps run in the same process, and die with it.
        serving = asyncio.create_task(work_off(kernel))
        await asyncio.wait_for(script.dead.wait(), 10)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await declare_dead(kernel)
    heir = Scripted(*TWO_CALLS)
    heir.requests, heir.done = list(script.requests), list(script.done)
    async with open_kernel(database.dsn, heir.app, queue=QUEUE, programs=heir) as kernel:
        await rescue(kernel.journal)
        await age(kernel)
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        assert ActionState.SUCCEEDED == ended.state, cut
        # Only the turn that nobody knows the answer of is asked again, and only if it had been asked.
        lost = cut[0] in ("turn_sent", "turn_received")
        again = [cut[1]] if cut[0] in ("turn_received",) else []
        assert sorted([1, 2, 3, *again]) == sorted(heir.requests), cut
        assert undisturbed == await bodies(kernel, asked.action_id, "answered"), cut
        assert ["1-1", "2-1"] == heir.done, cut
        found = await entries(kernel, asked.action_id)
        # One more request is remembered if the one before has no answer.
        more = 1 if lost or cut[0] == "turn_requested" else 0
        assert (list(range(1, 8 + more)), 3) == (
            [ordinal for ordinal, *_ in found],
            len(await steps(kernel, asked.action_id)),
        ), cut
        async with kernel.journal.pool.connection() as connection:
            stored = (await runs.map_by_ids(connection, "acme", [asked.action_id]))[asked.action_id]
        spent = stored.counters
        assert (3, 3 + more, 3, 100 * more) == (
            spent.turns,
            spent.requests,
            spent.calls,
            spent.reserved_tokens,
        ), cut
        await types(kernel, ended)


async def test_who_has_lost_its_lease_writes_no_entry_and_calls_nobody(database: Database) -> None:
    gate, hangs = asyncio.Event(), asyncio.Event()

    async def hang(stretch: Stretch, turn: int) -> None:
        if turn == 1 and not hangs.is_set():
            hangs.set()
            await gate.wait()
            await stretch.entries.has_run(TOO_LONG_MS)

    script = Scripted(["plan.quick"], provider=hang)
    async with (
        open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as late,
        open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel,
    ):
        asked = (await put(late, "plan.agent", ASKED, "k")).action
        await dispatch(late)
        await asyncio.wait_for(hangs.wait(), 10)
        await declare_dead(late)
        await rescue(kernel.journal)
        await age(kernel)
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        before = await entries(kernel, asked.action_id)
        gate.set()
        await until(lambda: not len(late.engine.runs))
        assert [1, 1, 2] == script.requests
        assert (ActionState.SUCCEEDED, 2) == (ended.state, ended.attempt)
        assert before == await entries(kernel, asked.action_id)
        assert TOO_LONG_MS > (await spent_by(kernel, asked.action_id)).active_ms
        assert (ended, ["1-1"]) == (await read(kernel, asked.action_id), script.done)
        assert [1, 1, 2, 2, 2, 2] == [attempt for *_, attempt in before]


@pytest.mark.parametrize("said", ['"type":"requested"', '"type":"answered"'])
async def test_an_entry_whose_reply_is_lost_is_there_once(database: Database, said: str) -> None:
    script = Scripted(["plan.find"])
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        make_lossy(kernel, once(said))
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        assert [1, 2] == script.requests
        assert (ActionState.SUCCEEDED, 1) == (ended.state, ended.attempt)
        assert list(range(1, 6)) == [ordinal for ordinal, *_ in await entries(kernel, asked.action_id)]
        await types(kernel, ended)


async def test_two_replicas_that_go_on_with_a_run_are_one(database: Database) -> None:
    script = Scripted(["plan.paid"], ["plan.quick"])
    async with (
        open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as one,
        open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as other,
    ):
        asked = [(await put(one, "plan.agent", ASKED, f"k{n}")).action for n in range(4)]
        await work_off(one)
        for each in asked:
            shown = await with_family_waits(one.journal, await parked(one, each.action_id))
            await vote(one, shown.waits[0].approval_id)
        await asyncio.gather(work_off(one), work_off(other))
        await work_off(one)
        assert sorted([1, 2, 3] * 4) == sorted(script.requests)
        for each in asked:
            ended = await read(one, each.action_id)
            assert (ActionState.SUCCEEDED, 1) == (ended.state, ended.attempt)
            assert 7 == len(await entries(one, each.action_id))


async def test_a_run_goes_on_from_its_newest_compaction(database: Database) -> None:
    found: list[tuple[list[str], int]] = []

    async def program(stretch: Stretch) -> Any:
        remembered = await stretch.entries.read()
        found.append(([entry.type.value for entry in remembered.entries], remembered.active_ms))
        if remembered.entries:
            return {"parts": [{"text": "over"}]}
        asked = Requested(turn=1, messages=('{"a":1}',))
        told = Compacted(turn=1, through=3, turns=1, counters=Counters(turns=1), messages=(STRANGE,))
        for body in (opened(), asked, Answered(turn=1), told):
            await stretch.entries.append(entry_of(body), Counters(turns=1, active_ms=5))
        raise Ended(Postponed(delay_seconds=0.0))

    script = Scripted()
    script.program = program
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        (begun, (kinds, active_ms)) = found
        assert (([], 0), ["opened", "compacted"]) == (begun, kinds)
        # With what has run between its entry and the pause.
        assert 5 <= active_ms < 60_000
        assert 4 == len(await entries(kernel, asked.action_id))
        (kept,) = await bodies(kernel, asked.action_id, "compacted")
        assert (STRANGE,) == messages_of(of_text(EntryType.COMPACTED, kept))
        await types(kernel, await read(kernel, asked.action_id))


async def test_what_a_run_remembers_counts_as_stored_and_goes_with_it(database: Database) -> None:
    script, clock = Scripted(["plan.find"]), FixedClock(START)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script, clock=clock) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        weigh = queries.load("quota")["weigh_page"]
        arguments = weigh.arguments(tenant="acme", after=NO_ID, count_max=1)
        async with kernel.journal.pool.connection() as connection:
            (bytes_,) = [r["bytes"] for r in await connection.fetch(weigh.sql, *arguments)]
        kept = await bodies(kernel, asked.action_id, "opened", "requested", "answered")
        row = 1024 + len(asked.input_json or "") + len("{}") + len(ENDED)
        assert row + sum(map(len, kept)) == bytes_
        clock.advance(400 * DAY)
        # A step is kept as long as its parent.
        assert (1, 1) == (await clean_all(kernel), await clean_all(kernel))
        async with kernel.journal.pool.connection() as connection:
            tables = ("actions", "run_entries", "runs")
            left = [await connection.fetchval(f"select count(*) from {table}") for table in tables]
    assert [0, 0, 0] == left
