"""What waits for people, as a section of a report: what has expired is ended, and nothing is decided."""

from __future__ import annotations

from collections import Counter

from placet_server.core.decision.expire import pass_time
from placet_server.core.publication.journal import Journal
from placet_server.model.decision import Approval, ApprovalState
from placet_server.model.report import ReportEntry, ReportFamily, ReportSection
from placet_server.store import approval as approvals
from placet_server.store.connection import Connection

BATCHES_MAX = 25
TEXT_LENGTH_MAX = 256


async def approvals_section(
    journal: Journal, tenant: str | None, *, validate_only: bool, entries_max: int
) -> ReportSection:
    """`tenant` None: of all tenants."""
    async with journal.pool.connection() as connection:
        found, count = await approvals.list_open(connection, tenant, count_max=entries_max)
    if not validate_only:
        for _ in range(BATCHES_MAX):
            if not (await pass_time(journal)).has_more:
                break
    async with journal.pool.connection() as connection:
        _, left = await approvals.list_open(connection, tenant, count_max=1)
        now = await _as_they_stand(connection, found)
    states = Counter(approval.state for approval in now)
    note = f"{states[ApprovalState.PENDING]} pending, {states[ApprovalState.GRANTED]} granted and not begun"
    return ReportSection(
        family=ReportFamily.APPROVALS,
        found=count,
        waiting=min(left, count),
        ended=max(0, count - left),
        note=note + ("" if count <= len(found) else f", of the first {len(found)}"),
        entries=tuple(map(_entry, now)),
    )


async def _as_they_stand(connection: Connection, found: list[Approval]) -> list[Approval]:
    stand = []
    for approval in found:
        stand.append(await approvals.get(connection, approval.tenant, approval.approval_id) or approval)
    return stand


def _entry(approval: Approval) -> ReportEntry:
    """Whoever may decide is found by its action; what is granted waits for a server like anything in a queue."""
    next_step = {
        ApprovalState.PENDING: f"placet show {approval.action_id}",
        ApprovalState.GRANTED: "placet queues",
    }
    what = f"{approval.capability}: {approval.title}" + (", escalated" if approval.escalated else "")
    return ReportEntry(
        id=approval.approval_id,
        what=what[:TEXT_LENGTH_MAX],
        outcome=approval.state.value,
        next_step=next_step.get(approval.state, ""),
    )
