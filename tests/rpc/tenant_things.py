"""A server over which tenants have things of every kind, and what anybody is told about them."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Sequence
from importlib import import_module
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
from placet.v1 import session_service_pb2 as session
from placet_server.rpc.permission import SCOPES
from tests.rpc.keys import Issuer
from tests.rpc.support import Refusal, bearer, send_bytes
from tests.rpc.tenant_rows import NOBODYS, Names

# Served by connectors, to Placet.
NOT_OURS = {"ConnectorService"}
SECONDS = 20.0


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
EVERY = sorted({scope for scope in SCOPES.values() if scope is not None})


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


async def furnish(made: Matrix, tenant: str = "acme", animal: str = "zebra") -> None:
    """Everything that a tenant can have, in words of its own."""
    key, queue, label, subject = (f"{animal}s{end}" for end in ("-key", "_queue", "-label", "-anna"))
    token = made.token(tenant, subject, EVERY)

    async def ask(name: str, request: Message) -> Any:
        return await made.ask(name, request, token)

    def wanted(capability: str, own_key: str) -> action_pb2.Invocation:
        options = action_pb2.InvocationOptions(idempotency_key=own_key, labels={"who": label})
        return action_pb2.Invocation(
            capability=capability, input_json=json.dumps({"text": f"{animal}-payload"}), options=options
        )

    await ask("CatalogService/AdmitManifest", catalog.AdmitManifestRequest(manifest=app.manifest()))
    done = await ask("RuntimeService/Execute", runtime.ExecuteRequest(invocation=wanted("zebras.note", key)))
    failed = await ask(
        "RuntimeService/Submit", runtime.SubmitRequest(invocation=wanted("zebras.fail", f"{animal}s-fail"))
    )
    later = runtime.SubmitRequest(invocation=wanted("zebras.note", f"{animal}s-wait"), queue=queue)
    later.delay.seconds = 3600
    waiting = await ask("RuntimeService/Submit", later)
    watched = runtime.WatchActionRequest(action_id=failed.action.action_id)
    await made.told("RuntimeService/WatchAction", watched, token)
    lost = runtime.ExecuteRequest(invocation=wanted("zebras.lose", f"{animal}s-lose"))
    assert b"EFFECT_AMBIGUOUS" in await made.told("RuntimeService/Execute", lost, token)
    gated = runtime.ExecuteRequest(invocation=wanted("zebras.pay", f"{animal}s-pay"))
    assert b"APPROVAL_REQUIRED" in await made.told("RuntimeService/Execute", gated, token)
    (pending,) = (await ask("ApprovalService/ListApprovals", approval.ListApprovalsRequest())).approvals
    (delivery,) = (
        await ask("OperationsService/ListDeliveries", operations.ListDeliveriesRequest())
    ).deliveries
    cedar = f'@id("{animal}-policy") permit(principal, action, resource);'
    await ask(
        "PolicyService/AdmitPolicySet",
        policy.AdmitPolicySetRequest(policy_set=policy.PolicySet(name=f"{animal}s", cedar=cedar)),
    )
    await ask("OperationsService/PauseQueue", operations.PauseQueueRequest(queue=queue, reason=label))
    doubted = (await ask("RecoveryService/ListAmbiguous", recovery.ListAmbiguousRequest())).effects
    dead = await ask("RecoveryService/ListDeadLetters", recovery.ListDeadLettersRequest())
    report = await ask("RecoveryService/Recover", recovery.RecoverRequest(validate_only=True))
    begun = await ask(
        "SessionService/CreateSession", session.CreateSessionRequest(title=label, idempotency_key=key)
    )
    made.theirs = Names(
        tenant=tenant,
        action=done.action.action_id,
        waiting=waiting.action.action_id,
        doubted=doubted[0].action.action_id,
        report=report.report.report_id,
        approval=pending.approval_id,
        delivery=delivery.delivery_id,
        session=begun.session.session_id,
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
