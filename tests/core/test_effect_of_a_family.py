"""What does nothing itself says of its effect what is known of its steps, in whatever way it ends."""

from contextlib import suppress
from typing import Any

import placet
from placet.app import App
from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.recovery.rescue import rescue
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.kernels import QUEUE, declare_dead, open_kernel, put, read, until_stored, work_off
from tests.core.parking import parked, serving, steps, told
from tests.core.people import DENY, vote
from tests.postgres import Database

S, E = ActionState, EffectState


ENDINGS: dict[str, Exception] = {
    "fails": placet.Failure("no", effect="not_done"),
    "claims": placet.Failure("no", effect="done"),
    "raises": RuntimeError("a bug"),
}


def kin() -> App:
    """`top` calls these, whatever they come to, and ends so."""
    app = App("kin")

    @app.tool("kin.find", "read")
    async def find() -> str:
        return "found"

    @app.tool("kin.pay", "unsafe")
    async def pay() -> str:
        return "paid"

    @app.tool("kin.lose", "unsafe")
    async def lose() -> str:
        raise RuntimeError("nobody knows")

    @app.tool("kin.fail", "unsafe")
    async def fail() -> str:
        raise placet.Failure("no", effect="not_done")

    @app.tool("kin.nest", "composed", attempts_max=1)
    async def nest(context: Context) -> Any:
        await context.call("in", "kin.lose", {})

    @app.tool("kin.top", "composed", attempts_max=1)
    async def top(context: Context, calls: list[str], ending: str) -> str:
        for number, name in enumerate(calls):
            with suppress(CallFailed):
                await context.call(f"s{number}", f"kin.{name}", {})
        if ending in ENDINGS:
            raise ENDINGS[ending]
        return "over"

    return app


async def test_its_effect_is_what_is_known_of_its_steps(database: Database) -> None:
    expected: list[tuple[list[str], str, ActionState, EffectState]] = [
        ([], "", S.SUCCEEDED, E.NOT_DONE),
        (["find", "fail"], "", S.SUCCEEDED, E.NOT_DONE),
        (["find", "pay"], "", S.SUCCEEDED, E.DONE),
        (["pay", "lose"], "", S.SUCCEEDED, E.UNKNOWN),
        (["nest"], "", S.SUCCEEDED, E.UNKNOWN),
        (["pay"], "fails", S.FAILED, E.DONE),
        (["lose"], "claims", S.FAILED, E.UNKNOWN),
        (["pay"], "raises", S.EXHAUSTED, E.DONE),
        (["fail"], "raises", S.EXHAUSTED, E.NOT_DONE),
    ]
    async with open_kernel(database.dsn, kin(), queue=QUEUE) as kernel:
        parents = [
            (await put(kernel, "kin.top", {"calls": calls, "ending": ending}, f"k{number}")).action
            for number, (calls, ending, _, _) in enumerate(expected)
        ]
        await work_off(kernel)
        for parent, (calls, _, state, effect) in zip(parents, expected, strict=True):
            ended = await read(kernel, parent.action_id)
            assert (state, effect) == (ended.state, ended.effect), calls
            assert ("effect_started" in await told(kernel, parent.action_id)) is any(
                c != "find" for c in calls
            )


async def test_a_lost_attempt_of_what_does_nothing_itself_is_run_again_and_never_in_doubt(
    database: Database,
) -> None:
    """Its steps are found again: none is done twice, and what people said no to they are not asked again."""
    app = App("kin")
    paid: list[int] = []
    starts: list[int] = []
    stuck = True

    @app.tool("kin.pay", "unsafe")
    async def pay() -> int:
        paid.append(1)
        return len(paid)

    @app.tool("kin.asked", "unsafe", approval="1 of role:finance")
    async def asked() -> None: ...

    @app.tool("kin.top", "composed")
    async def top(context: Context) -> Any:
        starts.append(context.attempt)
        with suppress(CallFailed):
            await context.call("ask", "kin.asked", {})
        got = await context.call("pay", "kin.pay", {})
        if stuck:
            await context.wait_cancelled()
        return got

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "kin.top", {}, "k")).action
        await work_off(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, parent.action_id))
        await vote(kernel, shown.waits[0].approval_id, verdict=DENY)

        async def has_paid() -> bool:
            return ActionState.SUCCEEDED in [each.state for each in await steps(kernel, parent.action_id)]

        async with serving(kernel):
            await until_stored(has_paid)
        await declare_dead(kernel)
    stuck = False
    async with open_kernel(database.dsn, app, queue=QUEUE) as other:
        rescued = await rescue(other.journal)
        assert (0, True) == (rescued.ambiguous, rescued.requeued >= 1)
        async with other.journal.pool.connection() as connection:
            await connection.execute("update actions set ready_time = create_time where state = 'QUEUED'")
            sql = "with d as (delete from queue_delayed returning *) insert into queue_ready select * from d"
            await connection.execute(sql)
        await work_off(other)
        ended = await read(other, parent.action_id)
        assert (S.SUCCEEDED, E.DONE, 2) == (ended.state, ended.effect, ended.attempt)
        assert ([1, 1, 2], [1], ["ask", "pay"]) == (
            starts,
            paid,
            [step.step_path for step in await steps(other, parent.action_id)],
        )
