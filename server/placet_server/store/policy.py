"""Policy sets, verdicts and refusals. Every function takes a connection and leaves the tx to its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from placet_server.model.policy import PolicySet, PolicyVerdict
from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("policy")

# So many of a tenant's revisions are kept, the newest ones.
REVISIONS_MAX = 100
# So many of a tenant's refusals are kept, the newest ones.
REFUSALS_MAX = 1000
REVISION_MAX = 2**62


class Revisions(NamedTuple):
    """Of the operator's set and of a tenant's own; 0 for none."""

    operator: int
    own: int


class ActionInput(NamedTuple):
    """What an action was asked to do, and the capability of its parent; empty for none."""

    input_json: str
    parent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicySet:
    """`restores`: the revision that it repeats. Revision 0 is the built-in one, admitted by nobody. `digest` is hex."""

    tenant: str
    revision: int
    digest: str
    document: PolicySet
    policy_count: int
    admitted_by: str = ""
    restores: int | None = None
    create_time_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetRow:
    """A revision without its document."""

    tenant: str
    revision: int
    digest: str
    name: str
    policy_count: int
    admitted_by: str
    restores: int | None
    create_time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call that policies refused. `caller`: JSON, as in actions. `parent`: the capability that called it."""

    refusal_id: str
    capability: str
    version: str
    subject: str
    caller: str
    input_digest: str
    parent: str
    verdict: PolicyVerdict
    create_time_us: int = 0


async def get_revisions(connection: Connection, tenant: str) -> Revisions:
    query = SQL["get_revisions"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant))
    return Revisions(r["operator"] or 0, r["own"] or 0) if r is not None else Revisions(0, 0)


async def get_set(connection: Connection, tenant: str, revision: int | None = None) -> StoredPolicySet | None:
    """The newest, if no revision is named."""
    query = SQL["get_set"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, revision=revision))
    if r is None:
        return None
    return StoredPolicySet(**{**dict(r), "document": PolicySet.from_text(r["document"])})


async def list_sets(
    connection: Connection, tenant: str, *, before: int, page_size: int
) -> list[PolicySetRow]:
    query = SQL["list_sets"]
    arguments = query.arguments(tenant=tenant, before=before, page_size=page_size)
    return [PolicySetRow(**dict(r)) for r in await connection.fetch(query.sql, *arguments)]


async def put_set(
    connection: Connection,
    tenant: str,
    document: PolicySet,
    *,
    after: int,
    policy_count: int,
    admitted_by: str,
    restores: int | None,
    now: datetime | None,
) -> int | None:
    """Its revision; None if the newest is not `after` any more."""
    query = SQL["put_set"]
    arguments = query.arguments(
        tenant=tenant,
        after=after,
        digest=bytes.fromhex(document.digest),
        document=document.to_text(),
        name=document.name,
        policy_count=policy_count,
        admitted_by=admitted_by,
        restores=restores,
        now=now,
    )
    revision: int | None = await connection.fetchval(query.sql, *arguments)
    if revision is not None and revision > REVISIONS_MAX:
        drop = SQL["drop_sets"]
        await connection.execute(drop.sql, *drop.arguments(tenant=tenant, last=revision - REVISIONS_MAX))
    return revision


async def put_verdict(
    connection: Connection, tenant: str, verdict: PolicyVerdict, now: datetime | None
) -> None:
    """Also of one that is stored already: that it is used now."""
    query = SQL["put_verdict"]
    arguments = query.arguments(
        tenant=tenant, digest=bytes.fromhex(verdict.digest), document=verdict.to_text(), now=now
    )
    await connection.execute(query.sql, *arguments)


async def get_verdicts(
    connection: Connection, tenant: str, digests: Sequence[str]
) -> dict[str, PolicyVerdict]:
    """By hex digest; what is not stored is not in it."""
    query = SQL["get_verdicts"]
    arguments = query.arguments(tenant=tenant, digests=[bytes.fromhex(digest) for digest in digests])
    records = await connection.fetch(query.sql, *arguments)
    return {r["digest"]: PolicyVerdict.from_text(r["document"]) for r in records}


async def list_inputs(
    connection: Connection, tenant: str, action_ids: Sequence[str]
) -> dict[str, ActionInput]:
    """By action id; what is not there is not in it."""
    query = SQL["list_inputs"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids))
    records = await connection.fetch(query.sql, *arguments)
    return {str(r["action_id"]): ActionInput(r["input"], r["parent"] or "") for r in records}


async def put_refusal(connection: Connection, tenant: str, refusal: Refusal, now: datetime | None) -> None:
    query = SQL["put_refusal"]
    arguments = query.arguments(
        tenant=tenant,
        refusal_id=refusal.refusal_id,
        capability=refusal.capability,
        version=refusal.version,
        subject=refusal.subject,
        caller=refusal.caller,
        input_digest=bytes.fromhex(refusal.input_digest),
        parent=refusal.parent,
        verdict=refusal.verdict.to_text(),
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def get_refusal(connection: Connection, tenant: str, refusal_id: str) -> Refusal | None:
    query = SQL["get_refusal"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, refusal_id=refusal_id))
    if r is None:
        return None
    return Refusal(
        **{**dict(r), "refusal_id": str(r["refusal_id"]), "verdict": PolicyVerdict.from_text(r["verdict"])}
    )


async def drop_refusals(connection: Connection, tenant: str) -> None:
    """All but the newest REFUSALS_MAX."""
    query = SQL["drop_refusals"]
    await connection.execute(query.sql, *query.arguments(tenant=tenant, kept=REFUSALS_MAX))
