"""Who asked is kept with the action, with all that a later run needs of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placet_server.model.caller import Caller, CallerKind, Credential, Delegate, Login, caller_of
from tests.core.kernels import ALICE, BOB, only_action, open_kernel, run
from tests.core.workshop import Workshop
from tests.postgres import Database

AGENT = Caller(
    tenant="acme",
    subject="clerk",
    kind=CallerKind.AGENT,
    roles=("packer", "clerk"),
    groups=("night",),
    scopes=frozenset({"actions.execute", "actions.read"}),
    delegation=(Delegate(subject="portal"), Delegate(subject="bot", kind=CallerKind.AGENT)),
    login=Login(strength="2", methods=("mfa", "hwk"), time_us=1_700_000_000_000_000),
    credential=Credential(
        handle="vault:7",
        issuer="vault",
        scopes=frozenset({"refund", "charge"}),
        expire_time_us=4_000_000_000_000_000,
    ),
)


@pytest.mark.parametrize(
    "caller", [ALICE, AGENT, replace(AGENT, credential=Credential(handle="h"), login=Login())]
)
async def test_a_stored_caller_is_who_asked(database: Database, caller: Caller) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        executed = await run(kernel, "work.read", {}, "k", caller=caller)
        stored = await only_action(kernel)
    assert executed.action.requester == stored.requester
    assert replace(caller, identity_source="stored") == caller_of(stored.requester)


async def test_a_caller_stored_before_there_were_groups_is_read(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        await run(kernel, "work.read", {}, "k", caller=BOB)
        async with kernel.journal.pool.connection() as connection:
            document = '{"kind":"USER","roles":["packer"],"scopes":["*"]}'
            await connection.execute("update actions set caller = $1", document)
        stored = await only_action(kernel)
    assert replace(BOB, roles=("packer",), identity_source="stored") == caller_of(stored.requester)
