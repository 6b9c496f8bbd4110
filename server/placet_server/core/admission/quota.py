"""The quota gate: how much a tenant may ask for, over all servers, as a settings file says.

A table named "*" is for each tenant that the file does not name; without it nothing happens for them. The rate is
exact: what is admitted is taken from the tenant's row first, for all who want it at that moment in one statement. What
is open and what is stored is what was counted last, some seconds ago (`meter`): between two counts a tenant may go
beyond it. What handlers call is not refused, for its parent was admitted; it counts as open and stored.

Each server counts, one at a time for a tenant: its open actions, and one page of a walk over all of them. Of tenants
that the file does not name those are counted that have asked for something here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, NamedTuple

from placet.supervisor import Supervisor
from placet_server.core.publication.journal import Journal
from placet_server.model.errors import PlacetError, StoreUnavailable
from placet_server.model.identity_errors import QuotaExceeded
from placet_server.settings_file import SettingsFile
from placet_server.store import quota as rows
from placet_server.store.quota import FIRST, Usage, Walk

METER_SECONDS = 5.0
USAGE_SECONDS = 1.0
PAGE_ACTIONS = 20_000
PAGE_ACTIONS_MIN = 100
COUNT_MAX = 1_000_000
BATCH_SECONDS_MAX = 6.0
EVERY_OTHER = "*"
UNNAMED_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """None: as much as anybody wants."""

    admissions_per_second: float | None = None
    open_actions: int | None = None
    stored_bytes: int | None = None

    @property
    def is_of_usage(self) -> bool:
        """What the tenant has must be counted for it."""
        return self.open_actions is not None or self.stored_bytes is not None


Tenants = Mapping[str, Quota]


def quotas_of(document: dict[str, Any]) -> Tenants:
    """A table for each tenant, and perhaps one for every other. Raises ValueError."""
    return {tenant: _quota_of(tenant, told) for tenant, told in document.items()}


def _quota_of(tenant: str, told: object) -> Quota:
    members = set(Quota.__dataclass_fields__)
    if not isinstance(told, dict) or told.keys() - members:
        raise ValueError(f"{tenant} says {', '.join(sorted(members))}, and nothing else")
    for name, value in told.items():
        kinds = (int, float) if name == "admissions_per_second" else (int,)
        if type(value) not in kinds or not (isfinite(value) and 0 < value <= 1e15):
            raise ValueError(f"{tenant}.{name} is a number above 0")
    return Quota(**told)


class _Wish(NamedTuple):
    wanted: int
    granted: asyncio.Future[rows.Charged]


class Quotas:
    """Belongs to one event loop."""

    def __init__(self, file: SettingsFile[Tenants], journal: Journal) -> None:
        self._file = file
        self._journal = journal
        self._supervisor = Supervisor()
        self._wishes: dict[str, list[_Wish]] = {}
        self._usage: dict[str, tuple[float, Usage]] = {}
        # Who has asked and is not in the file, the last one last; and how much is weighed at a time, where it was less.
        self._unnamed: dict[str, None] = {}
        self._pages: dict[str, int] = {}

    async def admit(self, tenant: str, count: int = 1) -> tuple[int, QuotaExceeded | None]:
        """How many of these may be admitted, and why not the others. Raises StoreUnavailable."""
        quota = self._quota_of(tenant)
        if quota is None:
            return count, None
        exceeded = await self._look(tenant, quota)
        if exceeded is not None:
            return 0, exceeded
        rate = quota.admissions_per_second
        if rate is None:
            return count, None
        charged = await self._charge(tenant, rate, count)
        if charged.granted >= count:
            return count, None
        return charged.granted, QuotaExceeded(
            quota="admissions_per_second", quota_max=rate, retry_delay_seconds=charged.wait_seconds
        )

    async def check(self, tenant: str) -> None:
        """For one. Raises QuotaExceeded, StoreUnavailable."""
        _, exceeded = await self.admit(tenant)
        if exceeded is not None:
            raise exceeded

    async def meter(self) -> None:
        """Counts once for each tenant that is due. Raises StoreUnavailable, after all of them."""
        named = self._file.current()
        failed: StoreUnavailable | None = None
        for tenant in (*named, *(each for each in self._unnamed if each not in named)):
            quota = named.get(tenant) or named.get(EVERY_OTHER)
            if tenant == EVERY_OTHER or quota is None or not quota.is_of_usage:
                continue
            try:
                await self._meter(tenant, quota)
            except StoreUnavailable as error:
                # It may have been too much at once. Others are counted nevertheless.
                failed = error
                self._pages[tenant] = max(PAGE_ACTIONS_MIN, self._page_of(tenant) // 4)
        if failed is not None:
            raise failed

    async def close(self) -> None:
        await self._supervisor.cancel_all()

    def _quota_of(self, tenant: str) -> Quota | None:
        named = self._file.current()
        if tenant in named:
            return named[tenant]
        quota = named.get(EVERY_OTHER)
        if quota is not None:
            self._unnamed.pop(tenant, None)
            self._unnamed[tenant] = None
            if len(self._unnamed) > UNNAMED_MAX:
                self._forget(next(iter(self._unnamed)))
        return quota

    def _forget(self, tenant: str) -> None:
        for known in (self._unnamed, self._usage, self._pages):
            known.pop(tenant, None)

    def _page_of(self, tenant: str) -> int:
        return self._pages.get(tenant, PAGE_ACTIONS)

    async def _look(self, tenant: str, quota: Quota) -> QuotaExceeded | None:
        if not quota.is_of_usage:
            return None
        usage = await self._usage_of(tenant)
        for name, used, most in (
            ("open_actions", usage.open_actions, quota.open_actions),
            ("stored_bytes", usage.stored_bytes, quota.stored_bytes),
        ):
            if most is not None and used >= most:
                return QuotaExceeded(quota=name, quota_max=most, retry_delay_seconds=METER_SECONDS)
        return None

    async def _usage_of(self, tenant: str) -> Usage:
        found = self._usage.get(tenant)
        if found is None or monotonic() - found[0] >= USAGE_SECONDS:
            async with self._journal.pool.connection() as connection:
                usage = await rows.get_usage(connection, tenant)
            found = self._usage[tenant] = monotonic(), usage
        return found[1]

    async def _charge(self, tenant: str, rate: float, count: int) -> rows.Charged:
        """With all that others want meanwhile."""
        wish = _Wish(count, asyncio.get_running_loop().create_future())
        waiting = self._wishes.get(tenant)
        if waiting is None:
            self._wishes[tenant] = [wish]
            self._supervisor.start(self._charge_all(tenant, rate))
        else:
            waiting.append(wish)
        return await wish.granted

    async def _charge_all(self, tenant: str, rate: float) -> None:
        """In the order in which they came."""
        wishes: list[_Wish] = []
        try:
            while wishes := self._wishes[tenant]:
                self._wishes[tenant] = []
                wanted = sum(wish.wanted for wish in wishes)
                async with self._journal.pool.connection() as connection:
                    now = self._journal.clock.now()
                    left, wait = await rows.charge(connection, tenant, rate=rate, wanted=wanted, now=now)
                for wish in wishes:
                    granted = min(left, wish.wanted)
                    left -= granted
                    if not wish.granted.done():
                        wish.granted.set_result(rows.Charged(granted, wait))
        except BaseException as error:
            told = error if isinstance(error, PlacetError) else StoreUnavailable(detail=repr(error))
            for wish in (*wishes, *self._wishes[tenant]):
                if not wish.granted.done():
                    wish.granted.set_exception(told)
            if not isinstance(error, PlacetError):
                raise
        finally:
            del self._wishes[tenant]

    async def _meter(self, tenant: str, quota: Quota) -> None:
        now = self._journal.clock.now()
        async with self._journal.pool.tx(BATCH_SECONDS_MAX) as connection:
            walk = await rows.lock_usage(connection, tenant, interval_seconds=METER_SECONDS, now=now)
            if walk is None:
                return
            is_open = 0
            if quota.open_actions is not None:
                most = min(quota.open_actions, COUNT_MAX)
                is_open = await rows.count_open(connection, tenant, count_max=most)
            stored: int | None = None
            if quota.stored_bytes is not None:
                size = self._page_of(tenant)
                page = await rows.weigh_page(connection, tenant, walk.after, count_max=size)
                walk = Walk(page.last or walk.after, walk.weight_bytes + page.weight_bytes)
                if page.actions < size:
                    stored, walk = walk.weight_bytes, Walk(FIRST, 0)
            await rows.note_usage(
                connection, tenant, open_actions=is_open, stored_bytes=stored, walk=walk, now=now
            )
        if tenant in self._pages:
            self._pages[tenant] = min(PAGE_ACTIONS, 2 * self._pages[tenant])
