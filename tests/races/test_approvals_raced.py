"""Two servers, one approval, and two things done to it at once, each through another of them: one legal history.

`PLACET_LONG=1`: a thousand rounds of every pair."""

import asyncio
import hashlib
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import combinations_with_replacement

import orjson
import pytest

from placet.app import App
from placet.context import Context
from placet_server.core.decision.expire import pass_time
from placet_server.core.decision.view import ApprovalView
from placet_server.core.execution.cancel import cancel_action, deliver_cancels
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState, VoteVerdict
from placet_server.model.errors import PlacetError
from placet_server.model.json_text import canonicalize
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.store import event as events
from tests.core.kernels import BOB, QUEUE, dispatch, open_kernel, places, put, read, work_off
from tests.core.people import ANNA, BEN, DENY, look, take_back, vote
from tests.postgres import Database

ROUNDS = 1000 if os.environ.get("PLACET_LONG") == "1" else 2
DEEDS = ("approve", "deny", "revoke", "expire", "cancel", "start")

A, P = ActionState, ApprovalState
# How an approval ends, and how its action does: its state, its reason, and whether it may have run.
LEGAL = {
    (P.PENDING, A.WAITING, None): (0,),
    (P.GRANTED, A.SUCCEEDED, None): (1,),
    # Begun, and cancelled before its handler was.
    (P.GRANTED, A.CANCELLED, "CANCELLED_BY_CALLER"): (0,),
    (P.DENIED, A.DENIED, "APPROVAL_DENIED"): (0,),
    (P.REVOKED, A.DENIED, "APPROVAL_REVOKED"): (0,),
    (P.EXPIRED, A.DENIED, "APPROVAL_EXPIRED"): (0,),
    # As it was claimed, and had not begun.
    (P.EXPIRED, A.CANCELLED, "CANCELLED_BY_CALLER"): (0,),
    (P.WITHDRAWN, A.CANCELLED, "CANCELLED_BY_CALLER"): (0,),
}
# What it was that happened, if this was answered with a yes.
TOLD_OF = {
    "deny": {P.DENIED},
    "revoke": {P.REVOKED, P.PENDING},
    "cancel": set(P) - {P.PENDING},
    "approve": set(P) - {P.DENIED, P.PENDING},
}


class Till:
    """What was really done: by action, the bytes of each input that the handler had."""

    def __init__(self) -> None:
        self.paid: dict[str, list[str]] = defaultdict(list)
        self.app = App("till")

        @self.app.tool("till.pay", "unsafe", approval="1 of role:finance; ttl=1h")
        async def pay(context: Context, order: str) -> str:
            self.paid[context.action_id].append(orjson.dumps({"order": order}).decode())
            return order


class World:
    """Two servers. Who does something asks one of them, at some moment."""

    def __init__(self, till: Till, kernels: tuple[Kernel, Kernel], seed: str) -> None:
        self.till = till
        self.kernels = kernels
        self.chance = random.Random(seed)

    async def do(self, deed: str, asked: ApprovalView, kernel: Kernel) -> bool:
        """Whether it was told that it is done."""
        # So many turns of the loop: another order of the same deeds.
        for _ in range(self.chance.randrange(12)):
            await asyncio.sleep(0)
        approval = asked.approval
        deeds: dict[str, Callable[[], Awaitable[object]]] = {
            "approve": lambda: vote(kernel, approval.approval_id, ANNA, digest=approval.digest),
            "deny": lambda: vote(kernel, approval.approval_id, BEN, DENY, digest=approval.digest),
            "revoke": lambda: take_back(kernel, approval.approval_id, ANNA),
            "expire": lambda: self.expire(approval.approval_id, kernel),
            "cancel": lambda: cancel_action(kernel.engine, BOB, approval.action_id, "race"),
            "start": lambda: dispatch(kernel),
        }
        try:
            await deeds[deed]()
        except PlacetError:
            return False
        return True

    async def expire(self, approval_id: str, kernel: Kernel) -> None:
        """Its time is over just now."""
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update approvals set expire_time = now(), next_time = now() "
                "where approval_id = $1 and next_time is not null",
                approval_id,
            )
        await pass_time(kernel.journal)

    async def round(self, pair: tuple[str, str], number: int) -> None:
        first, second = self.kernels
        key = f"{'-'.join(pair)}-{number}"
        action = (await put(first, "till.pay", {"order": key}, key)).action
        asked = await look(first, action.approval_id or "")
        if number % 2:
            await vote(second, asked.approval.approval_id, ANNA, digest=asked.approval.digest)
        done = await asyncio.gather(self.do(pair[0], asked, first), self.do(pair[1], asked, second))
        await self.come_to_rest()
        ended = await look(first, asked.approval.approval_id)
        await check(self, ended)
        for deed in {deed for deed, is_done in zip(pair, done, strict=True) if is_done}:
            assert ended.approval.state in TOLD_OF.get(deed, set(P)), (pair, number, ended.approval.state)
        if ended.action.state not in TERMINAL:
            await cancel_action(first.engine, BOB, action.action_id, "over")

    async def come_to_rest(self) -> None:
        """All that the loops of both servers would do."""
        for kernel in self.kernels:
            await work_off(kernel)
            await deliver_cancels(kernel.engine)
            await pass_time(kernel.journal)


async def check(world: World, ended: ApprovalView) -> None:
    """That this is one legal history."""
    approval, action = ended.approval, await read(world.kernels[0], ended.action.action_id)
    paid = world.till.paid.get(action.action_id, [])
    story = (approval.state, approval.consume_time_us is not None, action.state, action.reason, paid)
    assert len(paid) in LEGAL[approval.state, action.state, action.reason], story
    assert [action.input_json] * len(paid) == [canonicalize(each, bytes_max=1024).text for each in paid]
    assert (approval.state is P.GRANTED) == (approval.consume_time_us is not None), story
    standing = await places(world.kernels[0])
    assert action.action_id not in standing["queue_ready"] + standing["queue_delayed"]
    votes = [vote for vote in ended.decisions if vote.revoke_time_us is None]
    if approval.state in (P.GRANTED, P.DENIED):
        said = VoteVerdict.APPROVE if approval.state is P.GRANTED else DENY
        assert said in {vote.verdict for vote in votes}, story
    await check_events(world.kernels[0], action, len(ended.decisions))


async def check_events(kernel: Kernel, action: Action, votes: int) -> None:
    async with kernel.journal.pool.connection() as connection:
        links = await events.list_receipts(connection, "acme", action.action_id)
    previous = b""
    for number, link in enumerate(links, 1):
        parts = (action.action_id, str(number), link.type, str(link.create_time_us), link.body)
        previous = hashlib.sha256(previous + "\n".join(parts).encode()).digest()
        assert (number, previous.hex()) == (link.sequence, link.receipt)
    assert (action.sequence, action.receipt_digest) == (len(links), previous.hex())
    told = [link.type for link in links]
    assert told.count("settled") == (action.state in TERMINAL)
    assert action.state not in TERMINAL or told[-1] == "settled"
    cast = [link for link in links if link.type == "approval_decided"]
    assert votes == sum(not orjson.loads(link.body)["taken_back"] for link in cast)


@asynccontextmanager
async def open_world(database: Database, seed: str) -> AsyncIterator[World]:
    till = Till()
    async with (
        open_kernel(database.dsn, till.app, queue=QUEUE) as first,
        open_kernel(database.dsn, till.app, queue=QUEUE) as second,
    ):
        yield World(till, (first, second), seed)


@pytest.mark.timeout(7200)
async def test_two_deeds_at_once_leave_one_legal_history(database: Database) -> None:
    async with open_world(database, "pairs") as world:
        for pair in combinations_with_replacement(DEEDS, 2):
            for number in range(ROUNDS):
                await world.round(pair, number)
