"""Every RPC of every service, asked by whoever should get nothing: nobody, an old token, wrong scopes, another tenant.

The RPCs are read from the contract, so one without a row here fails. Another tenant's things are answered as things
that do not exist, byte for byte, and nothing of that tenant is in any answer, nor changed.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from placet_server.app import PlacetServer
from placet_server.model.caller import OPERATOR_SCOPE
from placet_server.rpc.page import page_token
from placet_server.rpc.permission import SCOPES
from tests.postgres import Database
from tests.rpc.keys import AUDIENCE, ISSUER, Issuer
from tests.rpc.servers import config_of
from tests.rpc.tenant_rows import NOBODYS, ROWS, Names
from tests.rpc.tenant_things import EVERY, RPCS, Matrix, app, furnish

# What acme has, and what nobody has; of the same length, so that answers differ in nothing else.
PAYLOAD = "zebra-payload"
# Which models there are is the operator's to know.
MODEL = "gpt-of-the-operator"
TARGETS = """
[[targets]]
tenant = "acme"
name = "desk"
url = "https://desk.example"
types = ["*"]
secrets = [{ file = "secret" }]
"""


OF_TENANTS = [name for name, method in RPCS.items() if "tenant" in method.input_type.fields_by_name]
OF_PAGES = [name for name, method in RPCS.items() if "page_token" in method.input_type.fields_by_name]


def test_every_rpc_has_a_row_and_a_scope() -> None:
    assert sorted(RPCS) == sorted(ROWS)
    assert sorted(f"/placet.v1.{name}" for name in RPCS) == sorted(SCOPES)
    assert {GetMessageClass(method.input_type) for method in RPCS.values()} == {
        type(row.ask(NOBODYS)) for row in ROWS.values()
    }


@asynccontextmanager
async def matrix(database: Database, folder: Path) -> AsyncIterator[Matrix]:
    issuer = Issuer()
    jwks = folder / "jwks.json"
    jwks.write_text(issuer.document())
    jwt = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_file": jwks, "jwt_leeway_seconds": 0}
    # Nobody has the app but who admits it.
    (folder / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    (folder / "callbacks.toml").write_text(TARGETS)
    # What is told waits, and is not sent from here.
    callbacks = {"callback_file": folder / "callbacks.toml", "callback_slots": 0}
    models = {"models_allowed": (f"openai:{MODEL}",), "agent_turns_max": 7}
    config = config_of(database.dsn, folder, admit_apps=False, **jwt, **callbacks, **models)
    server = PlacetServer(config, apps=[app])
    await server.start()
    try:
        async with grpc.aio.insecure_channel(server.target) as channel:
            made = Matrix(server.target, channel, issuer, database.dsn)
            await furnish(made)
            yield made
    finally:
        await server.stop(0)


def as_nobodys(said: bytes, theirs: Names) -> bytes:
    """With what was asked for by name left out."""
    for own, none in zip(theirs.words(), NOBODYS.words(), strict=True):
        said = said.replace(own.encode(), none.encode())
    return said


async def test_nobody_gets_anything_and_the_wrong_scopes_are_told_which_one_is_missing(
    database: Database, tmp_path: Path
) -> None:
    async with matrix(database, tmp_path) as made:
        before = await made.owned()
        expired = made.token("acme", "zebras-anna", EVERY, exp=time.time() - 1)
        answers: dict[str, set[bytes]] = {"none": set(), "expired": set()}
        for name, row in ROWS.items():
            request, scope = row.ask(made.theirs), SCOPES[f"/placet.v1.{name}"]
            answers["none"].add(await made.told(name, request, None))
            answers["expired"].add(await made.told(name, request, expired))
            if scope is not None:
                others = made.token(
                    "acme", "zebras-anna", [OPERATOR_SCOPE, *(s for s in EVERY if s != scope)]
                )
                said = await made.told(name, request, others)
                assert said.startswith(b"PERMISSION_DENIED SCOPE_MISSING"), name
                assert f"\x05scope\x12{chr(len(scope))}{scope}".encode() in said, name
        # In the same words whatever was asked, which needed no look at anything.
        assert [1, 1] == [len(words) for words in answers.values()]
        for words in answers.values():
            assert all(each.startswith(b"UNAUTHENTICATED UNAUTHENTICATED") for each in words)
        assert before == await made.owned()


async def test_other_tenants_things_are_as_if_they_did_not_exist_byte_for_byte(
    database: Database, tmp_path: Path
) -> None:
    async with matrix(database, tmp_path) as made:
        theirs, before = made.theirs, await made.owned()
        stranger = made.token("evil", "mallory", EVERY)
        operator = made.token("evil", "olga", [*EVERY, OPERATOR_SCOPE])
        info = ROWS["RuntimeService/GetServerInfo"].ask(NOBODYS)
        told = {
            token: await made.told("RuntimeService/GetServerInfo", info, token)
            for token in (stranger, operator)
        }
        assert [False, True] == [MODEL.encode() in said for said in told.values()]
        for name, row in ROWS.items():
            for token in (stranger, operator):
                if row.operator and token == operator:
                    continue
                own = await made.told(name, row.ask(theirs), token)
                none = await made.told(name, row.ask(NOBODYS), token)
                assert not row.alike or as_nobodys(own, theirs) == none, name
                for word in (*theirs.words(), PAYLOAD, "zebra", "acme"):
                    assert word.encode() not in none, (name, word)
                    assert word in str(row.ask(theirs)) or word.encode() not in own, (name, word)
        for name in OF_PAGES:
            request: Any = ROWS[name].ask(theirs)
            for tenant in ("acme", "none"):
                request.page_token = page_token(request, tenant, theirs.action)
                token = operator if ROWS[name].operator else stranger
                said = await made.told(name, request, token)
                assert said.startswith(b"INVALID_ARGUMENT MALFORMED_REQUEST"), (name, said)
        assert before == await made.owned()


def tenants_of(name: str) -> tuple[str, ...]:
    """Which ones a request may name."""
    if name not in OF_TENANTS:
        return ("",)
    # Policies are the own tenant's, or the server's for all.
    return ("-",) if name.startswith("PolicyService/") else ("-", "acme", "nobody")


async def test_operators_alone_name_other_tenants_and_payloads_are_withheld_from_them(
    database: Database, tmp_path: Path
) -> None:
    async with matrix(database, tmp_path) as made:
        before = await made.owned()
        stranger = made.token("evil", "mallory", EVERY)
        operator = made.token("evil", "olga", [*EVERY, OPERATOR_SCOPE])
        shown = b""
        for name in sorted({*OF_TENANTS, *(name for name, row in ROWS.items() if row.operator)}):
            for tenant in tenants_of(name):
                request: Any = ROWS[name].ask(made.theirs)
                if tenant:
                    request.tenant = tenant
                said = await made.told(name, request, stranger)
                assert said.startswith(b"PERMISSION_DENIED SCOPE_MISSING"), (name, tenant)
                assert b"\x05scope\x12\x08operator" in said
                if name.rpartition("/")[2].startswith(("List", "Get")):
                    told = await made.told(name, request, operator)
                    assert told.startswith((b"OK ", b"NOT_FOUND ")), (name, told)
                    shown += told
        # It has seen what there is, and none of what it is about.
        assert all(
            each.encode() in shown for each in (made.theirs.doubted, made.theirs.report, made.theirs.queue)
        )
        assert PAYLOAD.encode() not in shown
        assert before == await made.owned()
