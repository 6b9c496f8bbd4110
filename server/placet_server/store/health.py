"""Whether the store answers and still takes writes: asked for real, in bounded time."""

from __future__ import annotations

from placet_server.model.errors import StoreUnavailable
from placet_server.store import queries
from placet_server.store.pool import Pool

_SQL = queries.load("health")
READ, WRITE = _SQL["read"], _SQL["write"]


async def probe_store(pool: Pool, boot_id: str, *, timeout_seconds: float = 1.0) -> None:
    """One read and one write, on the row of this boot, within that time for both.

    A full disk or a read-only server still reads, so the write counts. Raises StoreUnavailable, also if the boot has no
    row any more.
    """
    async with pool.connection(timeout_seconds) as connection:
        await connection.fetchval(READ.sql)
        if await connection.fetchval(WRITE.sql, *WRITE.arguments(boot_id=boot_id)) is None:
            raise StoreUnavailable(detail=f"the store does not know boot {boot_id}")
