"""What waits for people is found by who can decide it: soonest expiry first, each once, and nobody else's."""

import asyncio
from typing import Any

import pytest

from placet_server.core.decision.view import list_approvals
from placet_server.core.kernel import Kernel
from placet_server.loops.approval_expirer import ApprovalExpirer
from placet_server.model.caller import Caller
from placet_server.model.decision import ApprovalQuery, ApprovalState
from placet_server.store import approval as approvals
from tests.core.kernels import ALICE, BOB, EVE, open_kernel, put
from tests.core.people import ANNA, BEN, CARL, DENY, capability_of, look, onlooker, vote
from tests.core.workshop import Workshop
from tests.postgres import Database


async def pages(kernel: Kernel, caller: Caller = ANNA, size: int = 50, **wanted: Any) -> list[list[str]]:
    """The approval ids of each page."""
    found, after = [], None
    while True:
        query = ApprovalQuery(page_size=size, after=after, **wanted)
        page = await list_approvals(kernel.journal, await onlooker(caller), query, capability_of(kernel))
        found.append([view.approval.approval_id for view in page.views])
        after = page.next_after
        if after is None:
            return found


async def one_list(kernel: Kernel, caller: Caller = ANNA, **wanted: Any) -> list[str]:
    return [each for page in await pages(kernel, caller, **wanted) for each in page]


async def test_pages_are_in_the_order_of_expiry_and_skip_or_repeat_nothing(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        asked = await asyncio.gather(
            *(put(kernel, "work.read", {"order": str(number)}, f"k{number}") for number in range(7))
        )
        ids = [each.action.approval_id or "" for each in asked]
        async with kernel.journal.pool.connection() as connection:
            for number, approval_id in enumerate(ids):
                # Two expire in the same moment.
                sql = (
                    "update approvals set expire_time = now() + $1 * interval '1 hour' where approval_id = $2"
                )
                await connection.execute(sql, 8 - number // 2 * 2, approval_id)
        found = await pages(kernel, size=2)
        assert [2, 2, 2, 1] == [len(page) for page in found]
        told = [each for page in found for each in page]
        assert (set(ids), len(ids)) == (set(told), len(told))
        times = [(await look(kernel, each)).approval.expire_time_us for each in told]
        assert sorted(times) == times


async def test_filters_and_eligibility(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop(approval="1 of role:finance or 1 of user:dora")
    async with open_kernel(database.dsn, shop.app) as kernel:
        one = (await put(kernel, "work.read", {"order": "1"}, "1", caller=ALICE)).action
        two = (await put(kernel, "work.unsafe", {"order": "2"}, "2", caller=BOB)).action
        await put(kernel, "work.read", {"order": "3"}, "3", caller=EVE)
        first, second = one.approval_id or "", two.approval_id or ""
        assert {first, second} == set(await one_list(kernel))
        assert [second] == await one_list(kernel, capabilities=("work.unsafe",))
        assert [first] == await one_list(kernel, requester="alice")
        assert [second] == await one_list(kernel, action_id=two.action_id)
        assert [] == await one_list(kernel, EVE, action_id=two.action_id)
        assert 2 == len(await one_list(kernel, eligible_only=True))
        dora = Caller(tenant="acme", subject="dora")
        assert 2 == len(await one_list(kernel, dora, eligible_only=True))
        assert [] == await one_list(kernel, CARL, eligible_only=True)
        await vote(kernel, first, BEN)
        await vote(kernel, second, BEN, DENY)
        assert [] == await one_list(kernel)
        assert [first] == await one_list(kernel, states=(ApprovalState.GRANTED,))
        assert [second] == await one_list(kernel, states=(ApprovalState.DENIED, ApprovalState.REVOKED))
        # A page whose scan ends before it is full goes on where it stood.
        monkeypatch.setattr(approvals, "SCAN_MAX", 1)
        assert [second] == await one_list(kernel, states=(ApprovalState.DENIED,))


async def test_what_waits_of_all_tenants_is_counted_by_the_loop(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        asked = [await put(kernel, "work.read", {}, "k", caller=caller) for caller in (ALICE, BOB, EVE)]
        await vote(kernel, asked[0].action.approval_id or "", verdict=DENY)
        expirer = ApprovalExpirer(kernel.journal)
        assert not await expirer.step()
        assert 2 == expirer.pending
