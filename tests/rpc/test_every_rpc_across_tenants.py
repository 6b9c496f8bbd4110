"""Every RPC of every service, asked by whoever should get nothing: nobody, an old token, wrong scopes, another tenant.

The RPCs are read from the contract, so one without a row here fails. Another tenant's things are answered as things
that do not exist, byte for byte, and nothing of that tenant is in any answer, nor changed.
"""

from __future__ import annotations

import base64
import json
import pkgutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg
import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import placet
import placet.v1
from placet.v1 import action_pb2
from placet.v1 import approval_service_pb2 as approval
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import operations_service_pb2 as operations
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as runtime
from placet_server.app import PlacetServer
from placet_server.model.caller import OPERATOR_SCOPE
from placet_server.rpc.page import page_token
from placet_server.rpc.permission import SCOPES
from tests.postgres import Database
from tests.rpc.keys import AUDIENCE, ISSUER, Issuer
from tests.rpc.servers import config_of
from tests.rpc.support import Refusal, bearer, send_bytes
from tests.rpc.tenant_rows import NOBODYS, ROWS, Names

# Served by connectors, to Placet.
NOT_OURS = {"ConnectorService"}
SECONDS = 20.0

# What acme has, and what nobody has; of the same length, so that answers differ in nothing else.
PAYLOAD = "zebra-payload"
TARGETS = """
[[targets]]
tenant = "acme"
name = "desk"
url = "https://desk.example"
types = ["*"]
secrets = [{ file = "secret" }]
"""


def rpcs() -> dict[str, MethodDescriptor]:
    """By service and name, of every service of the contract that Placet serves."""
    found: dict[str, MethodDescriptor] = {}
    for module in pkgutil.iter_modules(placet.v1.__path__):
        if not module.name.endswith("_service_pb2"):
            continue
        services = import_module(f"placet.v1.{module.name}").DESCRIPTOR.services_by_name
        for name, service in services.items():
            if name not in NOT_OURS:
                found |= {f"{name}/{method.name}": method for method in service.methods}
    return found


RPCS = rpcs()
OF_TENANTS = [name for name, method in RPCS.items() if "tenant" in method.input_type.fields_by_name]
OF_PAGES = [name for name, method in RPCS.items() if "page_token" in method.input_type.fields_by_name]


def test_every_rpc_has_a_row_and_a_scope() -> None:
    assert sorted(RPCS) == sorted(ROWS)
    assert sorted(f"/placet.v1.{name}" for name in RPCS) == sorted(SCOPES)
    assert {GetMessageClass(method.input_type) for method in RPCS.values()} == {
        type(row.ask(NOBODYS)) for row in ROWS.values()
    }


class Matrix:
    """A server over which acme has things, and what others are told."""

    def __init__(self, target: str, channel: grpc.aio.Channel, issuer: Issuer, dsn: str) -> None:
        self.target = target
        self._channel = channel
        self._issuer = issuer
        self._dsn = dsn
        self.theirs = NOBODYS

    def token(self, tenant: str, subject: str, scopes: Sequence[str], **claims: Any) -> str:
        return self._issuer.token(tenant=tenant, sub=subject, scope=" ".join(scopes), **claims)

    async def told(self, name: str, request: Message, token: str | None) -> bytes:
        """Everything that the caller learns, as bytes."""
        metadata = bearer(token) if token is not None else ()
        path = f"/placet.v1.{name}"
        try:
            if name.endswith(("/WatchEvents", "/WatchApprovals")):
                return await self._feed(path, request, metadata)
            answers = await send_bytes(
                self._channel, path, request.SerializeToString(), metadata=metadata, seconds=SECONDS
            )
        except grpc.aio.AioRpcError as error:
            refused = Refusal(error)
            trailers = sorted(
                (key, str(value)) for key, value in refused.trailers.items() if key[-4:] != "-bin"
            )
            text = f"{refused.code.name} {refused.reason} {refused.message} {trailers} "
            status: bytes = refused.status.SerializeToString(deterministic=True)
            return text.encode() + status
        return b"".join((b"OK ", *answers))

    async def _feed(self, path: str, request: Message, metadata: Any) -> bytes:
        """To the checkpoint at the end of the past. Every feed has its event in the same place."""
        method: Any = self._channel.unary_stream(path)
        call = method(request.SerializeToString(), metadata=metadata, timeout=SECONDS)
        said = b"OK "
        async for raw in call:
            said += raw
            if not runtime.WatchEventsResponse.FromString(raw).event.type:
                call.cancel()
                break
        return said

    async def ask(self, name: str, request: Message, token: str) -> Message:
        """Of acme, as it should be."""
        (raw,) = await send_bytes(
            self._channel,
            f"/placet.v1.{name}",
            request.SerializeToString(),
            metadata=bearer(token),
            seconds=SECONDS,
        )
        return GetMessageClass(RPCS[name].output_type).FromString(raw)

    async def owned(self) -> dict[str, tuple[int, int]]:
        """A sum over all rows of acme, by table."""
        connection = await asyncpg.connect(self._dsn)
        try:
            tables = await connection.fetch(
                "select table_name from information_schema.columns where table_schema = 'public'"
                " and column_name = 'tenant' and table_name in (select relname from pg_class where relkind = 'r')"
            )
            found = {}
            # Whom to ask about effects in doubt, and how much it has run, is the server's own business.
            for (table,) in (row for row in tables if row[0] not in ("reconciles", "queue_counts")):
                row = await connection.fetchrow(
                    f"select count(*), coalesce(sum(hashtext(t::text)::bigint), 0)::bigint from {table} as t"
                    " where tenant = 'acme'"
                )
                assert row is not None
                found[table] = (row[0], row[1])
            return found
        finally:
            await connection.close()


EVERY = sorted({scope for scope in SCOPES.values() if scope is not None})


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
    config = config_of(database.dsn, folder, admit_apps=False, **jwt, **callbacks)
    server = PlacetServer(config, apps=[app])
    await server.start()
    try:
        async with grpc.aio.insecure_channel(server.target) as channel:
            made = Matrix(server.target, channel, issuer, database.dsn)
            await furnish(made)
            yield made
    finally:
        await server.stop(0)


app = placet.App("zebras")


@app.tool("zebras.note", "read")
async def note(text: str) -> str:
    return text


@app.tool("zebras.pay", "idempotent", approval="1 of role:zebra-boss")
async def pay(text: str) -> str:
    return text


@app.tool("zebras.fail", "idempotent")
async def fail(text: str) -> str:
    raise placet.Failure("zebra_failed", text, effect="not_done")


@app.tool("zebras.lose", "unsafe")
async def lose(text: str) -> str:
    raise RuntimeError(text)


async def furnish(made: Matrix) -> None:
    """Everything that a tenant can have."""
    key, queue, label, subject = "zebras-key", "zebras_queue", "zebras-label", "zebras-anna"
    token = made.token("acme", subject, EVERY)

    async def ask(name: str, request: Message) -> Any:
        return await made.ask(name, request, token)

    def wanted(capability: str, own_key: str) -> action_pb2.Invocation:
        options = action_pb2.InvocationOptions(idempotency_key=own_key, labels={"who": label})
        return action_pb2.Invocation(
            capability=capability, input_json=json.dumps({"text": PAYLOAD}), options=options
        )

    await ask("CatalogService/AdmitManifest", catalog.AdmitManifestRequest(manifest=app.manifest()))
    done = await ask("RuntimeService/Execute", runtime.ExecuteRequest(invocation=wanted("zebras.note", key)))
    failed = await ask(
        "RuntimeService/Submit", runtime.SubmitRequest(invocation=wanted("zebras.fail", "zebras-fail"))
    )
    later = runtime.SubmitRequest(invocation=wanted("zebras.note", "zebras-wait"), queue=queue)
    later.delay.seconds = 3600
    waiting = await ask("RuntimeService/Submit", later)
    watched = runtime.WatchActionRequest(action_id=failed.action.action_id)
    await made.told("RuntimeService/WatchAction", watched, token)
    lost = runtime.ExecuteRequest(invocation=wanted("zebras.lose", "zebras-lose"))
    assert b"EFFECT_AMBIGUOUS" in await made.told("RuntimeService/Execute", lost, token)
    gated = runtime.ExecuteRequest(invocation=wanted("zebras.pay", "zebras-pay"))
    assert b"APPROVAL_REQUIRED" in await made.told("RuntimeService/Execute", gated, token)
    (pending,) = (await ask("ApprovalService/ListApprovals", approval.ListApprovalsRequest())).approvals
    (delivery,) = (
        await ask("OperationsService/ListDeliveries", operations.ListDeliveriesRequest())
    ).deliveries
    cedar = '@id("zebra-policy") permit(principal, action, resource);'
    await ask(
        "PolicyService/AdmitPolicySet",
        policy.AdmitPolicySetRequest(policy_set=policy.PolicySet(name="zebras", cedar=cedar)),
    )
    await ask("OperationsService/PauseQueue", operations.PauseQueueRequest(queue=queue, reason=label))
    doubted = (await ask("RecoveryService/ListAmbiguous", recovery.ListAmbiguousRequest())).effects
    dead = await ask("RecoveryService/ListDeadLetters", recovery.ListDeadLettersRequest())
    report = await ask("RecoveryService/Recover", recovery.RecoverRequest(validate_only=True))
    made.theirs = Names(
        tenant="acme",
        action=done.action.action_id,
        waiting=waiting.action.action_id,
        doubted=doubted[0].action.action_id,
        report=report.report.report_id,
        approval=pending.approval_id,
        delivery=delivery.delivery_id,
        digest=pending.digest,
        manifest="zebras",
        capability="zebras.note",
        key=key,
        queue=queue,
        label=label,
        subject=subject,
    )
    assert [len(word) for word in NOBODYS.words()] == [len(word) for word in made.theirs.words()]
    assert [failed.action.action_id] == [action.action_id for action in dead.actions]


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
