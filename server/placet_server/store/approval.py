"""What waits for people, and their votes, as they are read; and who is looking at them. What moves them is
`approval_move.py`'s, what admits an action with its approval `batch.py`'s. One typed function per query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from placet_server.model.decision import Approval, ApprovalQuery, ApprovalState, Decision
from placet_server.model.wait import WAITS_MAX, Wait, WaitKind
from placet_server.store import queries
from placet_server.store.action import ID_MIN
from placet_server.store.approval_record import read_approval, read_decision
from placet_server.store.connection import Connection

SQL = queries.load("approval")

SCAN_MAX = 5000
COUNT_MAX = 100_001
"""What is counted is counted up to here: it says more than 100,000."""

BELOW_MAX = 5000
"""So many of what an action has called are looked at for what waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A page. `last_scanned` is where the next one begins, an expiry and an id; None when there is no more."""

    approvals: tuple[Approval, ...]
    last_scanned: tuple[int, str] | None


async def get(connection: Connection, tenant: str, approval_id: str) -> Approval | None:
    query = SQL["get"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, approval_id=approval_id))
    return None if record is None else read_approval(record)


async def map_by_ids(connection: Connection, tenant: str, approval_ids: Sequence[str]) -> dict[str, Approval]:
    query = SQL["list_by_ids"]
    arguments = query.arguments(tenant=tenant, approval_ids=list(approval_ids))
    approvals = [read_approval(r) for r in await connection.fetch(query.sql, *arguments)]
    return {approval.approval_id: approval for approval in approvals}


async def map_decisions(
    connection: Connection, tenant: str, approval_ids: Sequence[str]
) -> dict[str, list[Decision]]:
    """Of each its votes, oldest first."""
    query = SQL["list_decisions"]
    arguments = query.arguments(tenant=tenant, approval_ids=list(approval_ids))
    found: dict[str, list[Decision]] = defaultdict(list)
    for record in await connection.fetch(query.sql, *arguments):
        found[str(record["approval_id"])].append(read_decision(record))
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
    approvals = tuple(read_approval(r) for r in records if r["approval_id"] is not None)
    if len(approvals) == query.page_size:
        return Scan(
            approvals=approvals, last_scanned=(approvals[-1].expire_time_us, approvals[-1].approval_id)
        )
    first = records[0]
    is_last = first["scanned_count"] < scan_max
    return Scan(
        approvals=approvals, last_scanned=None if is_last else (first["last_us"], str(first["last_id"]))
    )


async def list_open(
    connection: Connection, tenant: str | None, *, count_max: int
) -> tuple[list[Approval], int]:
    """Soonest expiry first, and how many there are. `tenant` None: of all tenants."""
    query = SQL["list_open"]
    arguments = query.arguments(tenant=tenant, scan_max=COUNT_MAX, count_max=count_max)
    records = await connection.fetch(query.sql, *arguments)
    return [read_approval(r) for r in records], records[0]["found"] if records else 0


async def count_pending(connection: Connection) -> int:
    """Of all tenants, up to COUNT_MAX."""
    query = SQL["count_pending"]
    count: int = await connection.fetchval(query.sql, *query.arguments(count_max=COUNT_MAX))
    return count


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


def _changed(tag: str) -> bool:
    return not tag.endswith(" 0")
