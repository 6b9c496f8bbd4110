"""Slots are divided between tenants, not between actions: who has queued ten thousand does not keep out who has ten."""

import asyncio
import math
import os
import random
from collections import Counter

import pytest

from placet.app import App
from placet_server.core.execution.fairness import share_out
from placet_server.core.kernel import Kernel
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.caller import Caller
from placet_server.model.line import Line, ReadyLine, Share
from tests.core.kernels import ALICE, QUEUE, open_kernel, put, until
from tests.postgres import Database

QUEUED_BY_THE_BUSY = int(os.environ.get("PLACET_FAIR_ACTIONS", "400"))
SECONDS = 0.05
SLOTS = 4


def ready(tenant: str, priority: int = 5, since: int = 0, capability: str = "a.b") -> ReadyLine:
    return ReadyLine(Line("default", capability, "1", tenant), priority, since)


def counts(shares: list[Share]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for share in shares:
        counted[share.line.tenant] += share.count_max
    return dict(counted)


@pytest.mark.parametrize("free", [0, 1, 2, 7, 64])
def test_never_more_than_is_free_and_nothing_left_over(free: int) -> None:
    lines = [ready(f"t{n}", capability=f"a.c{m}") for n in range(5) for m in range(3)]
    shares, _ = share_out(lines, free, "", {})
    assert free == sum(share.count_max for share in shares)
    assert all(share.count_max > 0 for share in shares)
    assert ([], "t") == share_out([], free, "t", {})


def test_a_small_tenant_gets_its_half() -> None:
    lines = [ready("big", capability=f"a.c{n}") for n in range(20)] + [ready("small")]
    shares, _ = share_out(lines, 8, "", {})
    assert {"big": 4, "small": 4} == counts(shares)


def test_what_runs_counts() -> None:
    lines = [ready("big"), ready("small")]
    assert {"small": 3} == counts(share_out(lines, 3, "", {"big": 61})[0])
    assert {"big": 1, "small": 4} == counts(share_out(lines, 5, "", {"big": 4, "small": 1})[0])


def test_rotation_reaches_every_tenant_when_there_are_more_than_slots() -> None:
    tenants = [f"t{n:02}" for n in range(10)]
    lines = [ready(tenant) for tenant in tenants]
    served: list[str] = []
    after = ""
    for _ in range(10):
        shares, after = share_out(lines, 3, after, {})
        served += counts(shares)
    assert dict.fromkeys(tenants, 3) == dict(Counter(served))
    # One that is gone, or comes, does not put the turns out of order.
    assert "t04" == share_out([ready("t04"), ready("t01")], 1, "t03", {})[1]
    assert "t01" == share_out([ready("t04"), ready("t01")], 1, "t04", {})[1]


def test_better_priority_goes_first_within_a_tenant() -> None:
    lines = [ready("a", 5, 1, "a.five"), ready("a", 2, 9, "a.two"), ready("b", 9)]
    shares, _ = share_out(lines, 4, "", {})
    # And from its line nothing that comes after the other's.
    assert [("a.two", 2, 5), ("a.b", 2, 9)] == [
        (share.line.capability, share.count_max, share.priority_last) for share in shares
    ]


def test_lines_of_equal_priority_share_and_the_longest_waiting_gets_what_is_over() -> None:
    lines = [ready("a", 5, 30, "a.x"), ready("a", 5, 10, "a.y"), ready("a", 5, 20, "a.z")]
    assert {"a.y": 2, "a.z": 2, "a.x": 1} == {
        share.line.capability: share.count_max for share in share_out(lines, 5, "", {})[0]
    }
    assert ["a.y"] == [share.line.capability for share in share_out(lines, 1, "", {})[0]]


@pytest.mark.parametrize("slots", [2, 4, 8, 64])
@pytest.mark.parametrize("long", [1, 30])
def test_ten_beside_ten_thousand_wait_no_three_times_as_long_as_alone(slots: int, long: int) -> None:
    """By the division alone, in turns of the small tenant's work; the busy one's may take `long` turns."""
    alone = _last_begin({"small": 10}, slots, {"small": 1})
    beside = _last_begin({"busy": 10_000, "small": 10}, slots, {"small": 1, "busy": long})
    # Nobody's work is interrupted: the first slot may have to be waited for.
    assert beside - long <= 3 * alone + 1


def _last_begin(waiting: dict[str, int], slots: int, turns: dict[str, int]) -> int:
    """In which turn the last of the small tenant's begins, after the busy one had everything."""
    left, after, begun = dict(waiting), "", 0
    dice = random.Random(1)
    ends = [("busy", dice.randrange(1, turns["busy"] + 1)) for _ in range(slots)] if "busy" in left else []
    for turn in range(100_000):
        ends = [(tenant, end) for tenant, end in ends if end > turn]
        while len(ends) < slots and any(left.values()):
            lines = [ready(tenant) for tenant, count in left.items() if count]
            shares, after = share_out(lines, slots - len(ends), after, Counter(t for t, _ in ends))
            for tenant, count in counts(shares).items():
                taken = min(count, left[tenant])
                left[tenant] -= taken
                ends += [(tenant, turn + turns[tenant])] * taken
                begun = turn
            if not left["small"]:
                return begun
    raise AssertionError(left)


async def test_ten_beside_a_tenant_that_queued_thousands(database: Database) -> None:
    alone = await _longest_wait_of_ten(database, busy=0)
    beside = await _longest_wait_of_ten(database, busy=QUEUED_BY_THE_BUSY)
    assert beside < 3 * alone, (beside, alone)


async def _longest_wait_of_ten(database: Database, *, busy: int) -> float:
    app = App("fair")
    began: Counter[str] = Counter()

    @app.tool("fair.work", "read")
    async def work(who: str) -> None:
        began[who] += 1
        await asyncio.sleep(SECONDS)

    settings = type(QUEUE)(slots_max=SLOTS)
    async with open_kernel(database.dsn, app, queue=settings) as kernel:
        assert kernel.dispatcher is not None
        await _queue(kernel, "busy", busy)
        kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        await until(lambda: began["busy"] >= min(busy, 2 * SLOTS))
        await _queue(kernel, f"small{busy}", 10)
        await until(lambda: 10 == began[f"small{busy}"], 60)
        assert not busy or began["busy"] < busy
        async with kernel.journal.pool.connection() as connection:
            sql = "select max(extract(epoch from start_time - ready_time))::float8 from actions where tenant = $1"
            waited = await connection.fetchval(sql, f"small{busy}")
    assert not math.isnan(waited)
    return float(waited)


async def _queue(kernel: Kernel, tenant: str, count: int) -> None:
    caller = Caller(tenant=tenant, subject="s", scopes=ALICE.scopes)
    await asyncio.gather(*(put(kernel, "fair.work", {"who": tenant}, caller=caller) for _ in range(count)))
