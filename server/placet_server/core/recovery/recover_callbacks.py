"""What others are yet to be told of, or were never told, as a section of a report: nothing is sent again by it."""

from __future__ import annotations

from collections.abc import Mapping

from placet_server.core.publication.callback import BURIED_MAX, bury_without_target
from placet_server.core.publication.journal import Journal
from placet_server.model.callback import Delivery, DeliveryState
from placet_server.model.report import ReportEntry, ReportFamily, ReportSection
from placet_server.store import callback as rows
from placet_server.store.callback import TargetKey

BATCHES_MAX = 50
TEXT_LENGTH_MAX = 256


async def callbacks_section(
    journal: Journal, tenant: str | None, *, validate_only: bool, entries_max: int
) -> ReportSection:
    """`tenant` None: of all tenants."""
    targets = journal.callbacks.targets
    if targets and not validate_only:
        for _ in range(BATCHES_MAX):
            if await bury_without_target(journal) < BURIED_MAX:
                break
        journal.callbacks.ring()
    async with journal.pool.connection() as connection:
        counts = await rows.count_open(connection, tenant, journal.clock.now())
        dead, pending = await rows.list_open(connection, tenant, count_max=entries_max)
    shown = (*dead[: max(entries_max // 2, entries_max - len(pending))], *pending)[:entries_max]
    return ReportSection(
        family=ReportFamily.CALLBACKS,
        found=counts.pending + counts.dead,
        waiting=counts.pending + counts.dead,
        note=f"{counts.pending} pending, of which {counts.due} are due; {counts.dead} dead",
        entries=tuple(_entry(each, is_known=_is_known(each, targets)) for each in shown),
    )


def _is_known(delivery: Delivery, targets: Mapping[TargetKey, object]) -> bool:
    return TargetKey(delivery.tenant, delivery.target) in targets


def _entry(delivery: Delivery, *, is_known: bool) -> ReportEntry:
    what = f"{delivery.type} to {delivery.target}, attempt {delivery.attempts} of {delivery.attempts_max}"
    if not is_known:
        what += ", of which this server's PLACET_CALLBACK_FILE has none"
    if delivery.last_error:
        what += f": {delivery.last_error}"
    return ReportEntry(
        id=delivery.delivery_id,
        what=what[:TEXT_LENGTH_MAX],
        outcome=delivery.state.value,
        next_step=_next_step(delivery),
    )


def _next_step(delivery: Delivery) -> str:
    if delivery.state is DeliveryState.DEAD:
        return f"placet deliveries redeliver {delivery.delivery_id}"
    return f"placet deliveries show {delivery.delivery_id}" if delivery.attempts else ""
