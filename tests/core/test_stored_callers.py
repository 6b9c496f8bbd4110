"""Who asked is kept with the action, with all that a later run needs of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placet.context import Context
from placet_server.model.caller import Caller, CallerKind, Credential, Delegate, Login, caller_of
from tests.core.kernels import ALICE, BOB, only_action, open_kernel, put, run
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
NEWER = Credential(handle="vault:8")


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


async def test_who_attends_with_a_key_of_the_tenant_runs_it_in_its_requesters_name(
    database: Database,
) -> None:
    seen: list[Any] = []

    async def script(context: Context) -> Any:
        seen.append((context.caller.subject, context.caller.scopes, context.credential_handle))
        return {"order": "1"}

    shop = Workshop(key_scope="tenant")
    shop.script = script
    async with open_kernel(database.dsn, shop.app) as kernel:
        for number, who in enumerate((BOB, replace(AGENT, scopes=frozenset({"*"}), credential=NEWER))):
            await put(kernel, "work.unsafe", {}, f"k{number}", caller=AGENT)
            done = await run(kernel, "work.unsafe", {}, f"k{number}", caller=who)
            assert ("clerk", True) == (done.action.requester.subject, done.attached)
    scopes = ("actions.execute", "actions.read")
    # Its requester may bring a newer credential, and no more scopes.
    assert [("clerk", scopes, "vault:7"), ("clerk", scopes, "vault:8")] == seen
