"""The answer to a question, for the action that asks it."""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.store import approval as approvals


async def answer_to(journal: Journal, tenant: str, action_id: str) -> str | None:
    """JSON; None: there is none, or it was taken back."""
    async with journal.pool.connection() as connection:
        return await approvals.find_answer(connection, tenant, action_id)
