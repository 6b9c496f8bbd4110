"""What was read of catalogues, kept per owner and thrown away whole when the owner's revision has moved. The revision
is read again after `refresh_seconds`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import monotonic

from placet_server.store import catalog as rows
from placet_server.store.catalog import StoredCapability
from placet_server.store.pool import Pool

_OWNERS_MAX = 1024
_ENTRIES_MAX = 4096


class _Known:
    """What was read of one owner's catalogue at one revision. Absence is remembered too."""

    __slots__ = ("checked_at", "entries", "revision")

    def __init__(self, revision: int, checked_at: float) -> None:
        self.revision = revision
        self.checked_at = checked_at
        self.entries: dict[tuple[str, str | None], StoredCapability | None] = {}


class CatalogCache:
    """One per process; belongs to its event loop."""

    def __init__(self, pool: Pool, refresh_seconds: float) -> None:
        self._pool = pool
        self._refresh_seconds = refresh_seconds
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._refreshing: dict[str, asyncio.Lock] = {}

    def checked_at(self, owner: str, unknown: float) -> float:
        """When the owner's revision was read, by the monotonic clock; `unknown` if nothing is known of it."""
        known = self._known.get(owner)
        return unknown if known is None else known.checked_at

    def forget(self, owner: str) -> None:
        """Its catalogue has changed."""
        self._known.pop(owner, None)

    async def find(self, owner: str, name: str, version: str | None) -> StoredCapability | None:
        """The version of the owner's, or the current one; None: there is none. Raises StoreUnavailable."""
        known = self._known.get(owner)
        if known is None or monotonic() - known.checked_at > self._refresh_seconds:
            known = await self._refreshed(owner)
        try:
            return known.entries[name, version]
        except KeyError:
            return await self._read(known, owner, name, version)

    async def _refreshed(self, owner: str) -> _Known:
        """The owner's entries if the revision has not moved, else none yet.

        One reader per owner at a time.
        """
        async with self._refreshing.setdefault(owner, asyncio.Lock()):
            known = self._known.get(owner)
            started = monotonic()
            if known is not None and started - known.checked_at <= self._refresh_seconds:
                return known
            async with self._pool.connection() as connection:
                revision = await rows.get_revision(connection, owner)
            if known is None or known.revision != revision or self._known.get(owner) is not known:
                known = self._known[owner] = _Known(revision, started)
            known.checked_at = started
            self._known.move_to_end(owner)
            while len(self._known) > _OWNERS_MAX:
                forgotten, _ = self._known.popitem(last=False)
                self._refreshing.pop(forgotten, None)
            return known

    async def _read(
        self, known: _Known, owner: str, name: str, version: str | None
    ) -> StoredCapability | None:
        """Read one entry into what the revision was checked for: newer rows may enter, older ones never."""
        async with self._pool.connection() as connection:
            stored = await rows.get_capability(connection, owner, name, version)
        if len(known.entries) >= _ENTRIES_MAX:
            known.entries.clear()
        known.entries[name, version] = stored
        return stored
