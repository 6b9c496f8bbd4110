"""What happens to a tenant's approvals, in the order of its feed, each as it stands when it is told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from placet_server.core.decision.view import ApprovalView, CapabilityOf, Onlooker, views_of
from placet_server.core.publication.feed import watch_pages
from placet_server.core.publication.journal import Journal
from placet_server.model.approval import selected
from placet_server.model.caller import Caller
from placet_server.model.event import Event, EventType, IdleCheckpoint
from placet_server.model.query import FeedFilter
from placet_server.store import approval as approvals

TOLD = (EventType.WAITING, EventType.APPROVAL_DECIDED, EventType.APPROVAL_ENDED)
# So many approvals are in memory at once.
VIEWS_MAX = 100


class ApprovalNews(NamedTuple):
    """`view` None: of a checkpoint."""

    event: Event | IdleCheckpoint
    view: ApprovalView | None


async def watch_approvals(
    journal: Journal,
    caller: Caller,
    who: Onlooker,
    after_cursor: str,
    capability_of: CapabilityOf,
    *,
    capabilities: Sequence[str] = (),
    eligible_only: bool = False,
    from_now: bool = False,
) -> AsyncGenerator[ApprovalNews, None]:
    """Cursors, replays and checkpoints as `watch_events` has them; what is deleted is not told.

    Raises MalformedRequest, CursorExpired.
    """
    wanted = FeedFilter(capabilities=tuple(capabilities), types=tuple(sorted(each.value for each in TOLD)))
    pages = watch_pages(journal, caller, after_cursor, wanted, from_now=from_now)
    async with aclosing(pages) as told:
        async for page in told:
            for start in range(0, len(page), VIEWS_MAX):
                some = page[start : start + VIEWS_MAX]
                views = await _views(journal, who, some, capability_of)
                for item in some:
                    if isinstance(item, IdleCheckpoint):
                        yield ApprovalNews(item, None)
                    elif (view := views.get(item.body["approval_id"])) is not None and (
                        not eligible_only or selected(view.approval.terms).selects(who.voter)
                    ):
                        yield ApprovalNews(item, view)


async def _views(
    journal: Journal, who: Onlooker, items: Sequence[Event | IdleCheckpoint], capability_of: CapabilityOf
) -> dict[str, ApprovalView]:
    ids = {item.body["approval_id"] for item in items if isinstance(item, Event)}
    if not ids:
        return {}
    async with journal.pool.connection() as connection:
        found = await approvals.map_by_ids(connection, who.tenant, sorted(ids))
    views = await views_of(journal, who, list(found.values()), capability_of)
    return {view.approval.approval_id: view for view in views}
