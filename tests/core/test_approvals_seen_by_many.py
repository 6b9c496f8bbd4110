"""Many people look at many approvals: who looks at which, what happens to them, and which are whose."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from placet_server.core.decision.claim import claim, release
from placet_server.core.decision.view import list_approvals
from placet_server.core.decision.watch import ApprovalNews, watch_approvals
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.decision import ApprovalQuery, ApprovalState
from placet_server.model.decision_errors import NotEligible
from placet_server.model.errors import CursorExpired, MalformedRequest, NotFound, StateConflict
from placet_server.model.event import IdleCheckpoint
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, EVE, open_kernel, put
from tests.core.people import ANNA, BEN, CARL, DENY, capability_of, look, onlooker, vote
from tests.core.workshop import Workshop
from tests.postgres import Database

# As if what was written so far had been deleted.
DELETED = "update feed_epochs set floor_xid = pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


async def ask(kernel: Kernel, key: str, order: str = "1") -> Action:
    return (await put(kernel, "work.unsafe", {"order": order}, key)).action


async def claimed(kernel: Kernel, approval_id: str, caller: Caller, seconds: float = 60.0) -> str:
    view = await claim(kernel.journal, await onlooker(caller), approval_id, seconds, capability_of(kernel))
    return view.approval.claimed_by


async def released(kernel: Kernel, approval_id: str, caller: Caller) -> str:
    view = await release(kernel.journal, await onlooker(caller), approval_id, capability_of(kernel))
    return view.approval.claimed_by


async def test_one_at_a_time_looks_at_it_and_that_hinders_no_vote(database: Database) -> None:
    clock = FixedClock(datetime.now(UTC))
    shop = Workshop(approval="2 of role:finance")
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        approval_id = (await ask(kernel, "k")).approval_id or ""
        told = await asyncio.gather(
            claimed(kernel, approval_id, ANNA), claimed(kernel, approval_id, BEN), return_exceptions=True
        )
        (holder,) = [each for each in told if isinstance(each, str)]
        other = BEN if holder == "anna" else ANNA
        with pytest.raises(StateConflict) as refused:
            await claimed(kernel, approval_id, other)
        assert "claimed_by_other" == refused.value.rule
        with pytest.raises(StateConflict):
            await released(kernel, approval_id, other)
        assert (await look(kernel, approval_id)).approval.claimed_by == holder
        await vote(kernel, approval_id, other)
        clock.advance(timedelta(seconds=61))
        assert "" == (await look(kernel, approval_id)).approval.claimed_by
        assert other.subject == await claimed(kernel, approval_id, other)
        assert other.subject == await claimed(kernel, approval_id, other)
        assert "" == await released(kernel, approval_id, other)
        assert "" == await released(kernel, approval_id, other)


async def test_only_who_could_decide_it_claims_what_is_pending(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = (await ask(kernel, "k")).approval_id or ""
        with pytest.raises(NotEligible):
            await claimed(kernel, approval_id, CARL)
        with pytest.raises(NotFound):
            await claimed(kernel, approval_id, EVE)
        assert "anna" == await claimed(kernel, approval_id, ANNA)
        await vote(kernel, approval_id)
        assert "" == (await look(kernel, approval_id)).approval.claimed_by
        with pytest.raises(StateConflict) as refused:
            await claimed(kernel, approval_id, ANNA)
        assert ("GRANTED", "not_pending") == (refused.value.state, refused.value.rule)


async def past(
    kernel: Kernel,
    caller: Caller = ANNA,
    after: str = "",
    *,
    eligible_only: bool = False,
    capabilities: Sequence[str] = (),
) -> list[ApprovalNews]:
    """All that has happened, with the checkpoint at its end."""
    found: list[ApprovalNews] = []
    watched = watch_approvals(
        kernel.journal,
        caller,
        await onlooker(caller),
        after,
        capability_of(kernel),
        eligible_only=eligible_only,
        capabilities=capabilities,
    )
    async with aclosing(watched) as news:
        async for each in news:
            found.append(each)
            if isinstance(each.event, IdleCheckpoint):
                break
    return found


def told(news: Sequence[ApprovalNews]) -> list[tuple[str, str, str]]:
    return [
        (each.event.type.value, each.view.action.action_id, each.view.approval.state.value)
        for each in news
        if each.view is not None and not isinstance(each.event, IdleCheckpoint)
    ]


async def test_whoever_watches_is_told_what_happens_from_any_cursor(database: Database) -> None:
    shop = Workshop(approval="2 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        live = watch_approvals(
            kernel.journal, ANNA, await onlooker(ANNA), "", capability_of(kernel), from_now=True
        )
        async with aclosing(live) as news:
            assert isinstance((await anext(news)).event, IdleCheckpoint)
            granted, denied, cancelled = [await ask(kernel, f"k{n}") for n in range(3)]
            pending = "waiting", granted.action_id, "PENDING"
            assert [pending] == told([await anext(news)])
        await vote(kernel, granted.approval_id or "", ANNA)
        await vote(kernel, granted.approval_id or "", BEN)
        await vote(kernel, denied.approval_id or "", ANNA, DENY)
        await cancel_action(kernel.engine, ALICE, cancelled.action_id, "")
        whole = await past(kernel)
        # Each as it stands now, which may be further than the event.
        states = {
            granted.action_id: "GRANTED",
            denied.action_id: "DENIED",
            cancelled.action_id: "WITHDRAWN",
        }
        assert {(id_, state) for _, id_, state in told(whole)} == set(states.items())
        assert ["waiting"] * 3 + ["approval_decided"] * 3 == [kind for kind, *_ in told(whole)][:6]
        assert all(each.event.replayed for each in whole if not isinstance(each.event, IdleCheckpoint))
        for index, each in enumerate(whole):
            assert told(whole[index + 1 :]) == told(await past(kernel, after=each.event.cursor))
        assert [] == told(await past(kernel, CARL, eligible_only=True))
        assert told(whole) == told(await past(kernel, BEN, eligible_only=True))
        assert [] == told(await past(kernel, EVE))
        assert [] == told(await past(kernel, capabilities=["work.idempotent"]))
        with pytest.raises(MalformedRequest):
            await past(kernel, ANNA, (await past(kernel, EVE))[-1].event.cursor)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(DELETED)
        with pytest.raises(CursorExpired):
            await past(kernel, ANNA, whole[0].event.cursor)


async def test_a_list_of_what_is_mine_finds_it_by_name_role_and_group(database: Database) -> None:
    shop = Workshop(approval="1 of role:legal,group:board,user:anna and 1 of role:head")
    async with open_kernel(database.dsn, shop.app) as kernel:
        await ask(kernel, "k")
        for caller, count in (
            (ANNA, 1),
            (BEN, 0),
            (CARL, 1),
            (replace(BEN, groups=("board",)), 1),
            (replace(BEN, roles=("head",)), 1),
            (replace(ANNA, tenant="other"), 0),
        ):
            query = ApprovalQuery(eligible_only=True, states=(ApprovalState.PENDING,))
            page = await list_approvals(kernel.journal, await onlooker(caller), query, capability_of(kernel))
            assert count == len(page.views)
