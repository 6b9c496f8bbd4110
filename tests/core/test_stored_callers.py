"""Who asked is kept with the action, with all that a later run needs of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placet_server.model.caller import Caller, CallerKind, Credential, caller_of
from tests.core.kernels import ALICE, only_action, open_kernel, run
from tests.core.workshop import Workshop
from tests.postgres import Database

AGENT = Caller(
    tenant="acme",
    subject="clerk",
    kind=CallerKind.AGENT,
    roles=("packer", "clerk"),
    scopes=frozenset({"actions.execute", "actions.read"}),
    credential=Credential(
        handle="vault:7",
        issuer="vault",
        scopes=frozenset({"refund", "charge"}),
        expire_time_us=4_000_000_000_000_000,
    ),
)


@pytest.mark.parametrize("caller", [ALICE, AGENT, replace(AGENT, credential=Credential(handle="h"))])
async def test_a_stored_caller_is_who_asked(database: Database, caller: Caller) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        executed = await run(kernel, "work.read", {}, "k", caller=caller)
        stored = await only_action(kernel)
    assert executed.action.requester == stored.requester
    assert replace(caller, identity_source="stored") == caller_of(stored.requester)
