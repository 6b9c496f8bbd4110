"""What waits for people, and their votes. One typed function per query; what admits an action with its approval is
`batch.py`'s.

What moves an approval is called within a tx that has locked its action (`lock_action`), then the approval (`lock`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from asyncpg import Record

from placet_server.model.action import Action
from placet_server.model.approval_text import parse_terms
from placet_server.model.decision import Approval, ApprovalQuery, ApprovalState, Decision, VoteVerdict
from placet_server.model.wait import WAITS_MAX, Wait, WaitKind
from placet_server.store import queries
from placet_server.store.action import ID_MIN
from placet_server.store.session import Connection

SQL = queries.load("approval")

SCAN_MAX = 5000
COUNT_MAX = 100_001
"""What is counted is counted up to here: it says more than 100,000."""

BELOW_MAX = 5000
"""So many of what an action has called are looked at for what waits."""


class Fact(NamedTuple):
    """An event to be told: its type and its body as JSON."""

    type: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A page. `last_scanned` is where the next one begins, an expiry and an id; None when there is no more."""

    approvals: tuple[Approval, ...]
    last_scanned: tuple[int, str] | None


class Due(NamedTuple):
    """An approval that somebody has to look at."""

    tenant: str
    approval_id: str
    action_id: str


class Consumed(NamedTuple):
    """`is_held`: the lease is the action's still."""

    is_held: bool
    is_consumed: bool


async def get(connection: Connection, tenant: str, approval_id: str) -> Approval | None:
    query = SQL["get"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, approval_id=approval_id))
    return None if record is None else _approval(record)


async def map_by_ids(connection: Connection, tenant: str, approval_ids: Sequence[str]) -> dict[str, Approval]:
    query = SQL["list_by_ids"]
    arguments = query.arguments(tenant=tenant, approval_ids=list(approval_ids))
    approvals = [_approval(r) for r in await connection.fetch(query.sql, *arguments)]
    return {approval.approval_id: approval for approval in approvals}


async def map_decisions(
    connection: Connection, tenant: str, approval_ids: Sequence[str]
) -> dict[str, list[Decision]]:
    """Of each its votes, oldest first."""
    query = SQL["list_decisions"]
    arguments = query.arguments(tenant=tenant, approval_ids=list(approval_ids))
    found: dict[str, list[Decision]] = defaultdict(list)
    for record in await connection.fetch(query.sql, *arguments):
        found[str(record["approval_id"])].append(_decision(record))
    return found


async def list_page(
    connection: Connection,
    tenant: str,
    query: ApprovalQuery,
    *,
    voter: str,
    roles: Sequence[str],
    groups: Sequence[str],
) -> Scan:
    """`voter` with these roles and groups is who `eligible_only` means."""
    states = query.states or (ApprovalState.PENDING,)
    after_us, after_id = query.after or (0, ID_MIN)
    of_action: dict[str, object] = {"action_id": query.action_id} if query.action_id else {}
    name = "list_of_action" if of_action else "list_pending" if states == (ApprovalState.PENDING,) else "list"
    page = SQL[name]
    # Where all that is looked at matches, no more is looked at than a page has.
    skips = name == "list" or query.capabilities or query.requester or query.eligible_only or query.action_id
    scan_max = SCAN_MAX if skips else query.page_size
    arguments = page.arguments(
        tenant=tenant,
        after_us=after_us,
        after_id=after_id,
        scan_max=scan_max,
        page_size=query.page_size,
        states=[state.value for state in states],
        capabilities=list(query.capabilities),
        requester=query.requester or None,
        eligible_only=query.eligible_only,
        voter=voter,
        voter_roles=list(roles),
        voter_groups=list(groups),
        **of_action,
    )
    records = await connection.fetch(page.sql, *arguments)
    approvals = tuple(_approval(r) for r in records if r["approval_id"] is not None)
    if len(approvals) == query.page_size:
        return Scan(
            approvals=approvals, last_scanned=(approvals[-1].expire_time_us, approvals[-1].approval_id)
        )
    first = records[0]
    is_last = first["scanned_count"] < scan_max
    return Scan(
        approvals=approvals, last_scanned=None if is_last else (first["last_us"], str(first["last_id"]))
    )


async def lock_action(connection: Connection, tenant: str, action_id: str) -> bool:
    """Until the tx ends, with its places in line. False: there is none."""
    query = SQL["lock_action"]
    arguments = query.arguments(tenant=tenant, action_id=action_id)
    return await connection.fetchval(query.sql, *arguments) is not None


async def lock(connection: Connection, tenant: str, approval_id: str) -> Approval | None:
    """Until the tx ends."""
    query = SQL["lock"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, approval_id=approval_id))
    return None if record is None else _approval(record)


async def time_of(connection: Connection, now: datetime | None) -> datetime:
    query = SQL["now"]
    time: datetime = await connection.fetchval(query.sql, *query.arguments(now=now))
    return time


async def insert_decision(
    connection: Connection, tenant: str, approval_id: str, decision: Decision, now: datetime
) -> None:
    query = SQL["insert_decision"]
    arguments = query.arguments(
        tenant=tenant,
        approval_id=approval_id,
        decision_id=decision.decision_id,
        voter=decision.voter,
        verdict=decision.verdict.value,
        reason=decision.reason,
        ticket=decision.ticket,
        attachments=list(decision.attachments),
        suggested_input=decision.suggested_input_json,
        answer=decision.answer_json,
        roles=list(decision.roles),
        groups=list(decision.groups),
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def revoke_decision(
    connection: Connection, approval: Approval, decision_id: str, now: datetime
) -> bool:
    """False: it was taken back before."""
    query = SQL["revoke_decision"]
    arguments = query.arguments(
        tenant=approval.tenant, approval_id=approval.approval_id, decision_id=decision_id, now=now
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def note(connection: Connection, action: Action, fact: Fact, now: datetime) -> bool:
    """Tells it of an action that does not move by it. False: the action is not as it was read."""
    query = SQL["note"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        event_type=fact.type,
        event_body=fact.body,
        now=now,
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def queue_action(
    connection: Connection, action: Action, fact: Fact, *, expire_time_us: int | None, now: datetime
) -> bool:
    """Makes a waiting action ready. `expire_time_us`: not begun any more from then on."""
    query = SQL["queue_action"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        event_type=fact.type,
        event_body=fact.body,
        expire_time_us=expire_time_us,
        now=now,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


async def grant(connection: Connection, approval: Approval, now: datetime) -> bool:
    query = SQL["grant"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id, now=now)
    return _changed(await connection.execute(query.sql, *arguments))


async def end(connection: Connection, approval: Approval, state: ApprovalState, now: datetime) -> bool:
    """False: it is not open any more."""
    query = SQL["end"]
    arguments = query.arguments(
        tenant=approval.tenant, approval_id=approval.approval_id, state=state.value, now=now
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def touch(connection: Connection, approval: Approval) -> bool:
    """Its votes have changed."""
    query = SQL["touch"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id)
    return _changed(await connection.execute(query.sql, *arguments))


async def consume(connection: Connection, action: Action, now: datetime | None) -> Consumed:
    """Begins the running action under its approval, by its lease."""
    query = SQL["consume"]
    arguments = query.arguments(
        tenant=action.requester.tenant, action_id=action.action_id, lease_id=action.lease_id, now=now
    )
    record = await connection.fetchrow(query.sql, *arguments)
    assert record is not None
    return Consumed(record["is_held"], record["is_consumed"])


async def fence(connection: Connection, action: Action, new_lease_id: str) -> bool:
    """False: the action is not as it was read."""
    query = SQL["fence"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        lease_id=action.lease_id,
        sequence=action.sequence,
        new_lease_id=new_lease_id,
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def list_due(connection: Connection, count_max: int, now: datetime | None) -> list[Due]:
    query = SQL["list_due"]
    records = await connection.fetch(query.sql, *query.arguments(count_max=count_max, now=now))
    return [Due(r["tenant"], str(r["approval_id"]), str(r["action_id"])) for r in records]


async def escalate(connection: Connection, approval: Approval) -> bool:
    """More people are told. False: it is not pending any more, or they have been."""
    query = SQL["escalate"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id)
    return _changed(await connection.execute(query.sql, *arguments))


async def look_again(connection: Connection, approval: Approval, now: datetime) -> None:
    """Nothing is to be done now."""
    query = SQL["look_again"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id, now=now)
    await connection.execute(query.sql, *arguments)


async def put_off(connection: Connection, due: Due, now: datetime | None) -> None:
    """It cannot be looked at now."""
    query = SQL["put_off"]
    arguments = query.arguments(tenant=due.tenant, approval_id=due.approval_id, now=now)
    await connection.execute(query.sql, *arguments)


async def list_open(
    connection: Connection, tenant: str | None, *, count_max: int
) -> tuple[list[Approval], int]:
    """Soonest expiry first, and how many there are. `tenant` None: of all tenants."""
    query = SQL["list_open"]
    arguments = query.arguments(tenant=tenant, scan_max=COUNT_MAX, count_max=count_max)
    records = await connection.fetch(query.sql, *arguments)
    return [_approval(r) for r in records], records[0]["found"] if records else 0


async def list_below(connection: Connection, tenant: str, action_id: str) -> list[Wait]:
    """Open waits of what an action has called."""
    query = SQL["list_below"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, below_max=BELOW_MAX, count_max=WAITS_MAX)
    return [
        Wait(
            kind=WaitKind(r["kind"]),
            approval_id=str(r["approval_id"]),
            action_id=str(r["action_id"]),
            step_path=r["path"],
            title=r["title"],
            expire_time_us=r["expire_time_us"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def find_answer(connection: Connection, tenant: str, action_id: str) -> str | None:
    """JSON; None: there is none."""
    query = SQL["find_answer"]
    arguments = query.arguments(tenant=tenant, action_id=action_id)
    answer: str | None = await connection.fetchval(query.sql, *arguments)
    return answer


async def claim(
    connection: Connection, approval: Approval, subject: str, seconds: float, now: datetime | None
) -> bool:
    """False: it is not pending, or somebody else's."""
    query = SQL["claim"]
    arguments = query.arguments(
        tenant=approval.tenant, approval_id=approval.approval_id, subject=subject, seconds=seconds, now=now
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def release(connection: Connection, approval: Approval, subject: str) -> bool:
    """False: it is not his."""
    query = SQL["release"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id, subject=subject)
    return _changed(await connection.execute(query.sql, *arguments))


def _approval(record: Record) -> Approval:
    predecessor_id = record["predecessor_id"]
    return Approval(
        tenant=record["tenant"],
        approval_id=str(record["approval_id"]),
        action_id=str(record["action_id"]),
        kind=WaitKind(record["kind"]),
        state=ApprovalState(record["state"]),
        digest=record["digest"],
        terms=parse_terms(record["terms"]),
        capability=record["capability"],
        title=record["title"],
        summary=record["summary"],
        predecessor_id=None if predecessor_id is None else str(predecessor_id),
        difference=record["difference"],
        create_time_us=record["create_time_us"],
        expire_time_us=record["expire_time_us"],
        escalate_time_us=record["escalate_time_us"],
        escalated=record["escalated"],
        consume_time_us=record["consume_time_us"],
        end_time_us=record["end_time_us"],
        revision=record["revision"],
        claimed_by=record["claimed_by"] or "",
        claim_expire_time_us=record["claim_expire_time_us"],
    )


def _decision(record: Record) -> Decision:
    return Decision(
        decision_id=record["decision_id"],
        voter=record["voter"],
        verdict=VoteVerdict(record["verdict"]),
        reason=record["reason"],
        ticket=record["ticket"],
        attachments=tuple(record["attachments"]),
        suggested_input_json=record["suggested_input"],
        answer_json=record["answer"],
        roles=tuple(record["roles"]),
        groups=tuple(record["groups"]),
        create_time_us=record["create_time_us"],
        revoke_time_us=record["revoke_time_us"],
    )


def _changed(tag: str) -> bool:
    return not tag.endswith(" 0")
