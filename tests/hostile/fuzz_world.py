"""Whom a run of fuzz has to do with: two tenants with things of every kind, and words for their owners alone."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from placet.v1 import action_pb2
from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import operations_service_pb2 as operations
from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.caller import OPERATOR_SCOPE, SENSITIVE_SCOPE
from tests.hostile.dice import METHODS, Dice
from tests.hostile.served import Served
from tests.hostile.shop import app
from tests.rpc.support import send_bytes
from tests.rpc.tenant_rows import NOBODYS, ROWS, Names
from tests.rpc.tenant_things import EVERY, RPCS, Matrix, furnish

APPROVALS = 20
TEXT = json.dumps({"text": "a"})
QUESTION = json.dumps({"title": "Which?", "to": "role:approver", "ttl": "4h"})
ANIMALS = {"acme": "zebra", "globex": "quoll"}
SETTINGS = {
    "PLACET_APP": "tests.hostile.shop:app,tests.rpc.tenant_things:app",
    "PLACET_ADMIT_APPS": "false",
    "PLACET_CALLBACK_HOSTS": "loopback",
}
TARGET = """
[[targets]]
tenant = "{}"
name = "desk"
url = "https://127.0.0.1:9"
types = ["*"]
secrets = [{{ file = "secret" }}]
"""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """`secrets`: what no answer may tell this one. `own`: what only its tenant is told."""

    tenant: str
    token: str
    secrets: tuple[bytes, ...]
    own: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class World:
    names: dict[str, list[Names]]
    known: dict[str, list[str]]
    callers: tuple[Caller, ...]
    dice_callers: tuple[Caller, ...]
    bad_tokens: tuple[str, ...]

    def good(self, path: str, tenant: str, dice: Dice) -> Message:
        """About things that there are, mostly of this tenant."""
        others = dice.random.choice(list(self.names.values()))
        names = others if dice.chance(0.3) else self.names.get(tenant, others)
        return ROWS[path.removeprefix("/placet.v1.")].ask(dice.random.choice(names))


def write_callbacks(folder: Path) -> Path:
    (folder / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    file = folder / "callbacks.toml"
    file.write_text("".join(TARGET.format(tenant) for tenant in ANIMALS))
    return file


async def furnish_world(server: Served) -> World:
    names: dict[str, list[Names]] = {"none": [NOBODYS]}
    secrets: dict[str, dict[str, list[bytes]]] = {}
    known: dict[str, list[str]] = {}
    async with grpc.aio.insecure_channel(server.target) as channel:
        for tenant, animal in ANIMALS.items():
            made = Matrix(server.target, channel, server.issuer, server.dsn)
            await furnish(made, tenant, animal)
            shop = catalog.AdmitManifestRequest(manifest=app.manifest())
            await made.ask("CatalogService/AdmitManifest", shop, made.token(tenant, "shop", EVERY))
            names[tenant] = await _many(made)
            secrets[tenant] = await _hide(made, tenant, animal)
            _add(
                known, await _places(channel, server.token(tenant, f"{animal}s-anna", scope=" ".join(EVERY)))
            )
    for each in itertools.chain.from_iterable(names.values()):
        _add(known, _known_of(each))
    known["tenant"] += ["-", "initech", "../acme"]
    everything = tuple(word for of in secrets.values() for words in of.values() for word in words)
    return World(
        names=names,
        known=known,
        callers=_callers(server, secrets),
        dice_callers=(Caller(tenant="initech", token=_token(server, "initech", "dora"), secrets=everything),),
        bad_tokens=(server.token(exp=1), server.token(tenant=None), server.token(scope=""), "x"),
    )


async def _many(made: Matrix) -> list[Names]:
    """What the tenant has, with one after the other of many approvals and questions."""
    theirs, token = made.theirs, made.token(made.theirs.tenant, made.theirs.subject, EVERY)
    for _ in range(APPROVALS):
        for capability, json_ in (("hostile.approved", TEXT), ("human.input", QUESTION)):
            options = action_pb2.InvocationOptions(on_wait=action_pb2.ON_WAIT_RETURN)
            invocation = action_pb2.Invocation(capability=capability, input_json=json_, options=options)
            await made.ask("RuntimeService/Execute", pb.ExecuteRequest(invocation=invocation), token)
    listing = approvals.ListApprovalsRequest(page_size=1000)
    listed: Any = await made.ask("ApprovalService/ListApprovals", listing, token)
    return [
        replace(theirs, approval=each.approval_id, digest=each.digest, waiting=each.action_id)
        for each in listed.approvals
    ]


async def _hide(made: Matrix, tenant: str, animal: str) -> dict[str, list[bytes]]:
    """More of everything, whose words and ids no request ever says. What operators may see is apart."""
    hidden = f"{animal}-hidden"
    token = made.token(tenant, hidden, EVERY)
    seen = [hidden.encode()]

    async def ask(capability: str, key: str) -> str:
        options = action_pb2.InvocationOptions(
            idempotency_key=f"{hidden}-{key}", labels={"who": hidden}, on_wait=action_pb2.ON_WAIT_RETURN
        )
        text = json.dumps({"text": f"{animal}-payload"})
        invocation = action_pb2.Invocation(capability=capability, input_json=text, options=options)
        request = pb.SubmitRequest(invocation=invocation)
        answer: Any = await made.ask("RuntimeService/Submit", request, token)
        return str(answer.action.action_id)

    for number, capability in enumerate(("note", "note", "fail", "lose", "pay", "pay")):
        action_id = await ask(f"zebras.{capability}", str(number))
        seen.append(action_id.encode())
    pause = operations.PauseQueueRequest(queue=f"{animal}_hidden", reason=hidden)
    await made.ask("OperationsService/PauseQueue", pause, token)
    listed: Any = await made.ask("ApprovalService/ListApprovals", approvals.ListApprovalsRequest(), token)
    seen += [a.approval_id.encode() for a in listed.approvals if a.requester.subject == hidden]
    return {"payload": [f"{animal}-payload".encode(), f"{animal}-policy".encode()], "seen": seen}


def _token(server: Served, tenant: str, subject: str, scopes: Sequence[str] = (), **claims: Any) -> str:
    return server.token(tenant, subject, scope=" ".join(scopes or (*EVERY, SENSITIVE_SCOPE)), **claims)


def _callers(server: Served, secrets: dict[str, dict[str, list[bytes]]]) -> tuple[Caller, ...]:
    found = []
    reading = [scope for scope in EVERY if scope.endswith(".read")]
    operating = [*reading, "operations.write", "recovery.write", OPERATOR_SCOPE]
    for tenant, animal in ANIMALS.items():
        (others,) = (of for name, of in secrets.items() if name != tenant)
        own = (*secrets[tenant]["payload"], *secrets[tenant]["seen"])
        everything = (*others["payload"], *others["seen"])
        boss = ["zebra-boss", "approver"]
        anna = _token(server, tenant, f"{animal}s-anna")
        for token in (
            *[anna] * 3,
            _token(server, tenant, f"{animal}s-boss", roles=boss, kind="user"),
            _token(server, tenant, f"{animal}s-agent", kind="agent", act={"sub": "bot", "kind": "agent"}),
            _token(server, tenant, f"{animal}s-reader", reading),
        ):
            found.append(Caller(tenant=tenant, token=token, secrets=everything, own=own))
        operator = _token(server, tenant, "olga", operating)
        found.append(Caller(tenant=tenant, token=operator, secrets=tuple(others["payload"])))
    return tuple(found)


def _known_of(names: Names) -> dict[str, list[str]]:
    actions = [names.action, names.waiting, names.doubted]
    capabilities = [names.capability, "zebras.pay", "hostile.approved", "human.input"]
    return {
        "action_id": [*actions, names.approval],
        "action_ids": actions,
        "action_id_prefix": [names.action[:8], names.action],
        "id": [*actions, names.approval],
        "approval_id": [names.approval, names.action],
        "report_id": [names.report],
        "delivery_id": [names.delivery],
        "digest": [names.digest],
        "expected_digest": [names.digest],
        "name": [names.manifest, names.capability],
        "manifest": [names.manifest],
        "capability": capabilities,
        "capabilities": capabilities,
        "pattern": [names.capability, "zebras.*", "*"],
        "name_prefix": ["zebras.", "hostile"],
        "idempotency_key": [names.key],
        "queue": [names.queue],
        "requester": [names.subject],
        "subjects": [names.subject],
        "tenant": [names.tenant],
    }


def _add(known: dict[str, list[str]], more: dict[str, list[str]]) -> None:
    for name, texts in more.items():
        known.setdefault(name, []).extend(text for text in texts if text)


async def _places(channel: grpc.aio.Channel, token: str) -> dict[str, list[str]]:
    """Page tokens and cursors of a tenant's own lists and feeds."""
    metadata = (("authorization", f"Bearer {token}"),)
    pages, cursors = [], []
    for path, takes in METHODS.items():
        if "page_token" not in takes.fields_by_name:
            continue
        request: Any = GetMessageClass(takes)()
        request.page_size = 1
        try:
            (raw,) = await send_bytes(channel, path, request.SerializeToString(), metadata=metadata)
        except grpc.aio.AioRpcError:
            # ListServers is for operators.
            continue
        answer: Any = GetMessageClass(RPCS[path.removeprefix("/placet.v1.")].output_type).FromString(raw)
        pages.append(answer.next_page_token)
        cursors += [action.cursor for action in getattr(answer, "actions", ())]
    return {"page_token": pages, "after_cursor": cursors, "cursor": cursors}
