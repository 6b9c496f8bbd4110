"""What a model said in turns that have their answer is taken away after a day; what nobody has an answer of stays, and
whoever goes on with the run goes on with its numbers.
"""

from datetime import UTC, datetime, timedelta

from placet_server.core.execution.ending import Ended, Postponed
from placet_server.core.execution.stretch import Stretch
from placet_server.core.kernel import Kernel
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.retention import Retention, clean
from placet_server.model.event import Event, EventType
from placet_server.model.lifecycle import ActionState
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, QUEUE, open_kernel, put, read, work_off
from tests.core.scripted import ASKED, Scripted, age
from tests.postgres import Database

DAY = timedelta(days=1)
START = datetime(2030, 1, 1, tzinfo=UTC)
PIECES = 4


async def heard(kernel: Kernel, action_id: str, after: str = "") -> list[Event]:
    stands = await read(kernel, action_id)
    found = []
    async for item in watch_action(kernel.journal, ALICE, action_id, after):
        if isinstance(item, Event):
            found.append(item)
            if item.sequence == stands.sequence and stands.state is not ActionState.SUCCEEDED:
                break
    return found


def said(events: list[Event]) -> list[tuple[int, int]]:
    """Turn and number."""
    return [(event.body["turn"], event.number) for event in events if event.type is EventType.DELTA]


async def test_deltas_of_answered_turns_go_after_a_day_and_their_numbers_go_on(database: Database) -> None:
    asked: list[int] = []

    async def provider(stretch: Stretch, turn: int) -> None:
        asked.append(turn)
        for _ in range(PIECES):
            await stretch.delta(turn, 1, "text", "word ")
        if asked == [1, 2]:
            raise Ended(Postponed(delay_seconds=10 * 86400.0, message="later"))

    script, clock = Scripted(["plan.find"], provider=provider), FixedClock(START)
    kept = Retention(ended=None, dead_letter=None)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script, clock=clock) as kernel:
        action = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        before = await heard(kernel, action.action_id)
        first, second = [(1, n) for n in range(1, 5)], [(2, n) for n in range(5, 9)]
        assert [*first, *second] == said(before)
        clock.advance(DAY - timedelta(seconds=1))
        await clean(kernel.journal, kept)
        assert said(before) == said(await heard(kernel, action.action_id))
        clock.advance(timedelta(seconds=1))
        await clean(kernel.journal, kept)
        assert second == said(await heard(kernel, action.action_id))
        clock.advance(10 * DAY)
        await age(kernel)
        await work_off(kernel)
        assert [1, 2, 2] == asked
        third = [(2, n) for n in range(9, 13)]
        # Who stood in the middle of what is gone goes on there.
        middle = next(event.cursor for event in before if event.number == 2)
        assert [*second, *third] == said(await heard(kernel, action.action_id, middle))
        clock.advance(DAY)
        await clean(kernel.journal, kept)
        ended = await heard(kernel, action.action_id)
        # The last one says how far its attempt had come.
        assert (third[-1:], EventType.SETTLED) == (said(ended), ended[-1].type)
        async with kernel.journal.pool.connection() as connection:
            assert 0 == await connection.fetchval("select count(*) from runs where said_time is not null")
