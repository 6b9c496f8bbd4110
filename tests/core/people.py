"""People who say yes or no: who they are, and how they vote on what a kernel has waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placet_server.core.decision.authority import TokenAuthority
from placet_server.core.decision.decide import DecideCommand, decide
from placet_server.core.decision.revoke import RevokeCommand, revoke
from placet_server.core.decision.view import ApprovalView, Onlooker, view_of
from placet_server.core.decision.voter import voter_of
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.decision import VoteVerdict
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.store import event as events
from tests.core.kernels import ALICE, run

ANNA = Caller(tenant="acme", subject="anna", roles=("finance",), scopes=frozenset({"*"}))
BEN = Caller(tenant="acme", subject="ben", roles=("finance",), scopes=frozenset({"*"}))
CARL = Caller(tenant="acme", subject="carl", roles=("legal",), scopes=frozenset({"*"}))
# Who asks, and could approve if it were not for that.
ALICE_OF_FINANCE = replace(ALICE, roles=("finance",))

APPROVE, DENY = VoteVerdict.APPROVE, VoteVerdict.DENY


async def onlooker(caller: Caller, *, sees_sensitive: bool = True) -> Onlooker:
    voter = await voter_of(caller, TokenAuthority())
    return Onlooker(tenant=caller.tenant, voter=voter, sees_sensitive=sees_sensitive, may_decide=True)


def capability_of(kernel: Kernel) -> Any:
    async def find(action: Action) -> Capability | None:
        try:
            found = await kernel.catalog.find(action.requester.tenant, action.capability, action.version)
        except CapabilityNotFound:
            return None
        return found.capability

    return find


async def look(
    kernel: Kernel, approval_id: str, caller: Caller = ANNA, *, sees_sensitive: bool = True
) -> ApprovalView:
    who = await onlooker(caller, sees_sensitive=sees_sensitive)
    return await view_of(kernel.journal, who, approval_id, capability_of(kernel))


async def vote(
    kernel: Kernel,
    approval_id: str,
    caller: Caller = ANNA,
    verdict: VoteVerdict = APPROVE,
    *,
    decision_id: str = "",
    digest: str = "",
    sees_sensitive: bool = True,
    **said: Any,
) -> ApprovalView:
    """With the digest that the approval has, and a decision id of the voter's own, unless said."""
    if not digest:
        digest = (await look(kernel, approval_id)).approval.digest
    command = DecideCommand(
        approval_id=approval_id,
        digest=digest,
        verdict=verdict,
        decision_id=decision_id or f"{caller.subject}-1",
        **said,
    )
    who = await onlooker(caller, sees_sensitive=sees_sensitive)
    return await decide(kernel.journal, who, command, capability_of(kernel))


async def take_back(
    kernel: Kernel, approval_id: str, caller: Caller = ANNA, *, decision_id: str = "", reason: str = ""
) -> ApprovalView:
    command = RevokeCommand(
        approval_id=approval_id, decision_id=decision_id or f"{caller.subject}-1", reason=reason
    )
    return await revoke(kernel.journal, await onlooker(caller), command, capability_of(kernel))


async def ask(kernel: Kernel, key: str = "k", capability: str = "work.unsafe", **options: Any) -> str:
    """The approval that executing has made."""
    with pytest.raises(ApprovalRequired) as caught:
        await run(kernel, capability, {"order": "1"}, key, **options)
    return caught.value.approval_id


async def facts(kernel: Kernel, action_id: str) -> list[str]:
    """The types of all that has happened to it."""
    async with kernel.journal.pool.connection() as connection:
        return [each.type for each in await events.list_receipts(connection, "acme", action_id)]
