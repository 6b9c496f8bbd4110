"""SIGKILL of who runs an agent, at every boundary of its run, of its calls and of the agent that it asks: whoever goes
on asks no model for what it has answered, has each effect once, asks people once, and tells the models what they are
told in a run that nobody disturbed, byte for byte. So does whoever goes on with a run that was being summed up.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Request
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.publication.wake import sweep
from placet_server.core.recovery.rescue import rescue
from placet_server.loops.effect_reconciler import EffectReconciler
from placet_server.model.action import Action
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from tests.core.agents import KEY_VARIABLE, open_shop, said, spent
from tests.core.kernels import output, put, read, work_off
from tests.core.people import vote
from tests.core.scripted import age
from tests.core.test_run_too_long import Forgetful
from tests.examples import LONG
from tests.faults.agent_desk import CLERKS_EFFECTS, EFFECTS, SCRIPTS, Desk
from tests.postgres import Database

# The provider has the request, and nobody has the answer; a call's admission is about to be written with it.
ASKED_AGAIN = ("turn_received", "before_intent_persistence")
MODELS = {"model-x": "test", "model-y": "other", "model-z": "third"}
UNANSWERED = ("turn_requested", "turn_sent", "turn_received")
ROUNDS_MAX = 8
Work = Callable[[str], Awaitable[int]]
Turn = tuple[str, int]


class Cut(NamedTuple):
    """`voted`: after people have said yes. `nth`: since the process began. `turn`: of the model that was asked last."""

    voted: bool
    boundary: str
    capability: str
    nth: int
    turn: Turn | None


class Course(NamedTuple):
    """What a run of an agent does, and comes to. `cuts`: of so many of these boundaries the suite tries some; of those
    after the request `since`, if it is not None.
    """

    agent: str
    key: str
    effects: Counter[str]
    requests: int
    calls: set[str]
    boundaries: set[str]
    cuts: int
    since: Turn | None = None


HELPS = Course(
    agent="desk.helper",
    key="help",
    effects=EFFECTS,
    requests=8,
    calls={"desk.find", "desk.count", "desk.pay", "desk.writer"},
    boundaries={"run_opened", "turn_answered", "calls_admitted", "call_told", "parked", *UNANSWERED},
    cuts=9,
)
SUMS_UP = Course(
    agent="desk.clerk",
    key="sums",
    effects=CLERKS_EFFECTS,
    requests=5,
    calls={"desk.find", "desk.count"},
    boundaries={"turn_received", "turn_answered", "run_compacted", "turn_requested"},
    cuts=2,
    since=("model-z", 9),
)


class Whole(NamedTuple):
    """What there is of a run: what its models were asked, by model and turn, and what it has spent."""

    requests: dict[Turn, bytes]
    calls: int


@asynccontextmanager
async def mortals(dsn: str, address: str, provider: Path) -> AsyncIterator[Work]:
    """Has a process work everything off; how it ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.faults.mortal_agent", dsn, address, str(provider)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reader, writer = process.stdout, process.stdin

    async def work(boundary: str) -> int:
        writer.write(f"{boundary or '-'}\n".encode())
        await writer.drain()
        return int(await asyncio.wait_for(reader.readline(), 60))

    try:
        yield work
    finally:
        writer.close()
        await asyncio.wait_for(process.wait(), 30)


async def begun(kernel: Kernel, course: Course, key: str) -> Action:
    return (await put(kernel, course.agent, {"parts": [{"text": f"Help {key}."}]}, key)).action


async def allow(kernel: Kernel, action: Action) -> None:
    shown = await with_family_waits(kernel.journal, action)
    for wait in shown.waits:
        await vote(kernel, wait.approval_id)


async def undisturbed(
    database: Database, server: OpenAIServer, desk: Desk, course: Course
) -> tuple[list[Cut], Whole]:
    """Every boundary that a run comes to, and what it was."""
    log: list[Cut] = []
    is_voted = is_working = False

    def note(name: str, capability: str) -> None:
        if is_working and capability.startswith("desk."):
            same = [
                cut
                for cut in log
                if (cut.voted, cut.boundary, cut.capability) == (is_voted, name, capability)
            ]
            newest = _turn(server.requests[-1]) if server.requests else None
            log.append(Cut(is_voted, name, capability, len(same) + 1, newest))

    async with open_shop(database.dsn, desk, server, hook=note) as kernel:
        before = desk.effects()
        action = await begun(kernel, course, "key-whole")
        is_working = True
        await work_off(kernel)
        is_voted, is_working = True, False
        await allow(kernel, await read(kernel, action.action_id))
        is_working = True
        await work_off(kernel)
        assert said("Over.") == output(await read(kernel, action.action_id))
        assert course.effects == desk.effects() - before
        requests = {_turn(request): request.body for request in server.requests}
        assert course.requests == len(requests) == len(server.requests)
        return log, Whole(requests, (await spent(kernel, action.action_id)).calls)


@pytest.mark.timeout(3600)
async def test_a_run_that_is_killed_anywhere_is_as_one_that_was_not(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    desk = Desk(tmp_path / "provider")
    async with Forgetful(SCRIPTS) as server:
        server.begin = 1
        async with mortals(database.dsn, server.base_url, tmp_path / "provider") as work:
            for course in (HELPS, SUMS_UP):
                del server.requests[:]
                cuts, whole = await undisturbed(database, server, desk, course)
                assert course.calls <= {cut.capability for cut in cuts}
                newest = [cut for cut in cuts if course.since in (None, cut.turn)]
                assert course.boundaries <= {cut.boundary for cut in newest if cut.capability == course.agent}
                async with open_shop(database.dsn, desk, server) as kernel:
                    for number, cut in enumerate(cuts if LONG else random.sample(newest, course.cuts)):
                        before = desk.effects()
                        await _killed(kernel, server, work, cut, course, f"{course.key}{number:05}", whole)
                        assert course.effects == desk.effects() - before, cut


async def _killed(
    kernel: Kernel, server: OpenAIServer, work: Work, cut: Cut, course: Course, key: str, whole: Whole
) -> None:
    del server.requests[:]
    action = await begun(kernel, course, key)
    if cut.voted:
        await work_off(kernel)
        await allow(kernel, await read(kernel, action.action_id))
    assert -signal.SIGKILL == await work(f"{cut.boundary}:{cut.capability}:{cut.nth}"), cut
    is_recorded = cut.boundary not in ASKED_AGAIN or await _has_answer(kernel, server, action, cut.turn)
    ended = await _healed(kernel, action)
    assert (ActionState.SUCCEEDED, EffectState.DONE, said("Over.")) == (
        ended.state,
        ended.effect,
        output(ended),
    ), cut
    again = Counter([] if is_recorded else [cut.turn])
    assert Counter(whole.requests).keys() == {_turn(each) for each in server.requests}, cut
    assert Counter(dict.fromkeys(whole.requests, 1)) + again == Counter(map(_turn, server.requests)), cut
    for request in server.requests:
        assert whole.requests[_turn(request)] == request.body.replace(key.encode(), b"key-whole"), cut
    assert whole.calls == (await spent(kernel, action.action_id)).calls, cut


async def _has_answer(kernel: Kernel, server: OpenAIServer, action: Action, turn: Turn | None) -> bool:
    """Whether all that the model of this turn was asked is recorded, of the run or of the one that it asks. A run
    counts a summary as a turn, and the server does not.
    """
    assert turn is not None
    async with kernel.journal.pool.connection() as connection:
        answered: int = await connection.fetchval(
            "select count(*) from run_entries join runs using (tenant, action_id) "
            "join actions using (tenant, action_id) where coalesce(root_id, action_id) = $1 and model = $2 "
            "and type = 'answered'",
            action.action_id,
            MODELS[turn[0]],
        )
    asked = sum(_turn(request)[0] == turn[0] for request in server.requests)
    assert asked - 1 <= answered <= asked, turn
    return answered == asked


async def _healed(kernel: Kernel, action: Action) -> Action:
    """Once a server has seen that the other one is dead, has done what it left, and people have been asked."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute(
            "update instances set state = 'DEAD', dead_time = now() where boot_id <> $1", kernel.boot_id
        )
    asking = EffectReconciler(kernel).reconciler
    for _ in range(ROUNDS_MAX):
        await rescue(kernel.journal)
        async with kernel.journal.pool.connection() as connection:
            # Time passes: who is dead can do nothing more, and whoever is to be asked later is asked.
            await connection.execute(
                "update actions set deadline = now() - interval '1 hour' where state = 'AMBIGUOUS'"
            )
            await connection.execute("update reconciles set next_time = now()")
        await asking.run_once()
        await asking.idle()
        await sweep(kernel.journal)
        await age(kernel)
        await work_off(kernel)
        found = await read(kernel, action.action_id)
        if found.state in TERMINAL:
            return found
        await allow(kernel, found)
    return await read(kernel, action.action_id)


def _turn(request: Request) -> Turn:
    return request.json["model"], request.turn
