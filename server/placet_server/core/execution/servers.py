"""Who is at work on this store, and telling the others that this process is about to leave."""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.model.errors import StoreUnavailable
from placet_server.store import instance
from placet_server.store.instance import Server


async def list_servers(journal: Journal, *, after: str, page_size: int) -> list[Server]:
    """In the order of their ids, after one of them; "": from the first on."""
    async with journal.pool.connection() as connection:
        return await instance.list_alive(
            connection, after=after, count_max=page_size, now=journal.clock.now()
        )


async def tell_draining(journal: Journal) -> None:
    """For operators. Nothing depends on it, so a store that is away is left alone."""
    try:
        async with journal.pool.connection() as connection:
            await instance.note_drain(connection, journal.boot_id, now=journal.clock.now())
    except StoreUnavailable:
        return
