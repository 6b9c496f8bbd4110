"""A tenant with a quota: exactly as fast as it may over all servers, and no fuller than was counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from placet_server.core.admission import quota
from placet_server.core.admission.quota import METER_SECONDS, Quotas, quotas_of
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.kernel import Kernel
from placet_server.model.action import Submission
from placet_server.model.errors import PlacetError, StoreUnavailable
from placet_server.model.identity_errors import QuotaExceeded
from placet_server.settings_file import SettingsFile, SettingsFileRefused
from placet_server.store import quota as rows
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, EVE, call_of, open_kernel, put, run, states
from tests.core.workshop import Workshop
from tests.postgres import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def limited(
    database: Database, folder: Path, clock: FixedClock, text: str, shop: Workshop | None = None
) -> AsyncIterator[Kernel]:
    path = folder / "quotas.toml"
    path.write_text(text)
    shop = shop or Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        kernel.quotas = Quotas(SettingsFile(path, quotas_of), kernel.journal)
        try:
            yield kernel
        finally:
            await kernel.quotas.close()


async def outcome(work: Any) -> str:
    try:
        await work
    except PlacetError as error:
        return error.reason
    return "stored"


async def test_the_rate_is_exact_over_all_servers_at_once(database: Database, tmp_path: Path) -> None:
    clock = FixedClock(NOW)
    text = "[acme]\nadmissions_per_second = 5"
    async with (
        limited(database, tmp_path, clock, text) as first,
        limited(database, tmp_path, clock, text) as second,
    ):
        both = (first, second)
        calls = [run(both[n % 2], "work.read", {}) for n in range(12)]
        others = [run(each, "work.read", {}, caller=EVE) for each in both]
        told = Counter(await asyncio.gather(*(outcome(each) for each in calls)))
        assert {"stored": 5, "QUOTA_EXCEEDED": 7} == told
        assert ["stored"] * 2 == list(await asyncio.gather(*(outcome(each) for each in others)))
        with pytest.raises(QuotaExceeded) as refused:
            await run(first, "work.read", {})
        assert {"quota": "admissions_per_second", "quota_max": "5"} == refused.value.metadata()
        assert refused.value.retry_delay_seconds == pytest.approx(0.2)
        assert refused.value.outcome is None
        clock.advance(timedelta(seconds=0.2))
        assert ["stored", "QUOTA_EXCEEDED"] == [await outcome(run(each, "work.read", {})) for each in both]
        # However long nobody asked, no more than a second's worth comes at once.
        clock.advance(timedelta(hours=1))
        told = Counter([await outcome(put(both[n % 2], "work.read", {})) for n in range(7)])
        assert {"stored": 5, "QUOTA_EXCEEDED": 2} == told
        assert 11 == len(await states(first))


async def test_who_waited_for_the_row_while_others_took_from_it_brings_no_time_back(
    database: Database, tmp_path: Path
) -> None:
    clock = FixedClock(NOW)
    async with limited(database, tmp_path, clock, "[acme]\nadmissions_per_second = 1") as kernel:
        assert kernel.quotas is not None
        told = []
        # The second statement began before the first one, and got the row after it.
        for step_seconds in (0.0, -2.0, 2.0, 1.0, -61.0, 1.0):
            clock.advance(timedelta(seconds=step_seconds))
            told.append(await outcome(kernel.quotas.check("acme")))
        # A clock that was turned back counts on from there.
        refused = "QUOTA_EXCEEDED"
        assert ["stored", refused, refused, "stored", refused, "stored"] == told


async def test_a_batch_gets_as_much_as_there_is_and_each_item_its_own_answer(
    database: Database, tmp_path: Path
) -> None:
    clock = FixedClock(NOW)
    async with limited(database, tmp_path, clock, "[acme]\nadmissions_per_second = 3") as kernel:
        items = [(call_of("work.read", {}, f"k{n}"), Submission()) for n in range(5)]
        items[1] = (call_of("work.nothing", {}, "k"), Submission())
        results = await submit_batch(kernel, items)
        told = [each.reason if isinstance(each, PlacetError) else "stored" for each in results]
        assert ["stored", "CAPABILITY_NOT_FOUND", "stored", "stored", "QUOTA_EXCEEDED"] == told


async def test_what_is_open_and_stored_is_counted_and_then_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "USAGE_SECONDS", 0.0)
    monkeypatch.setattr(quota, "PAGE_ACTIONS", 2)
    clock = FixedClock(NOW)
    text = "[acme]\nopen_actions = 3\n[evil]\nstored_bytes = 3000"
    async with limited(database, tmp_path, clock, text) as kernel:
        assert kernel.quotas is not None
        for n in range(4):
            # Nobody has counted yet.
            await put(kernel, "work.read", {}, place=Submission(delay_seconds=60.0 * (n % 2)))
            await run(kernel, "work.read", {}, caller=EVE)
        await kernel.quotas.meter()
        with pytest.raises(QuotaExceeded) as refused:
            await put(kernel, "work.read", {})
        assert {"quota": "open_actions", "quota_max": "3"} == refused.value.metadata()
        told = []
        for _ in range(3):
            told.append(await outcome(kernel.quotas.check("evil")))
            # Not again before it is time.
            await kernel.quotas.meter()
            clock.advance(timedelta(seconds=METER_SECONDS))
            await kernel.quotas.meter()
        # Two pages of two, of which the second has more than there may be, and then an empty one.
        assert ["stored", "QUOTA_EXCEEDED", "QUOTA_EXCEEDED"] == told
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("delete from queue_ready")
        clock.advance(timedelta(seconds=METER_SECONDS))
        await kernel.quotas.meter()
        assert "stored" == await outcome(put(kernel, "work.read", {}))


async def test_whom_the_file_does_not_name_has_what_it_says_for_every_other(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "USAGE_SECONDS", 0.0)
    text = "[acme]\nopen_actions = 9\n['*']\nopen_actions = 1"
    async with limited(database, tmp_path, FixedClock(NOW), text) as kernel:
        assert kernel.quotas is not None
        for caller in (EVE, ALICE):
            await put(kernel, "work.read", {}, caller=caller)
        await kernel.quotas.meter()
        told = [await outcome(kernel.quotas.check(tenant)) for tenant in ("evil", "acme", "third")]
        assert ["QUOTA_EXCEEDED", "stored", "stored"] == told


async def test_a_tenant_that_cannot_be_counted_is_weighed_in_parts_and_keeps_no_other_from_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "USAGE_SECONDS", 0.0)
    weigh, asked = rows.weigh_page, []

    async def slow(connection: Any, tenant: str, after: str, *, count_max: int) -> Any:
        asked.append((tenant, count_max))
        if tenant == "acme" and count_max > quota.PAGE_ACTIONS // 4:
            raise StoreUnavailable(detail="it takes too long")
        return await weigh(connection, tenant, after, count_max=count_max)

    monkeypatch.setattr(rows, "weigh_page", slow)
    text = "[acme]\nstored_bytes = 9\n[evil]\nstored_bytes = 9"
    clock = FixedClock(NOW)
    async with limited(database, tmp_path, clock, text) as kernel:
        assert kernel.quotas is not None
        for caller in (EVE, ALICE):
            await run(kernel, "work.read", {}, caller=caller)
        with pytest.raises(StoreUnavailable):
            await kernel.quotas.meter()
        assert "QUOTA_EXCEEDED" == await outcome(kernel.quotas.check("evil"))
        clock.advance(timedelta(seconds=METER_SECONDS))
        await kernel.quotas.meter()
        assert "QUOTA_EXCEEDED" == await outcome(kernel.quotas.check("acme"))
        whole = quota.PAGE_ACTIONS
        assert [("acme", whole), ("evil", whole), ("acme", whole // 4), ("evil", whole)] == asked


async def test_a_store_that_is_away_admits_nobody_and_everybody_hears_of_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited(database, tmp_path, FixedClock(NOW), "[acme]\nadmissions_per_second = 9") as kernel:
        assert kernel.quotas is not None

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable(detail="away")

        with monkeypatch.context() as patch:
            patch.setattr("placet_server.store.quota.charge", away)
            told = await asyncio.gather(*(outcome(kernel.quotas.check("acme")) for _ in range(3)))
        assert ["STORE_UNAVAILABLE"] * 3 == list(told)
        assert "stored" == await outcome(kernel.quotas.check("acme"))


@pytest.mark.parametrize(
    "text",
    [
        "acme = 3",
        "[acme]\nopen = 3",
        "[acme]\nopen_actions = 1.5",
        "[acme]\nopen_actions = 0",
        "[acme]\nopen_actions = true",
        "[acme]\nadmissions_per_second = -1",
        "[acme]\nadmissions_per_second = nan",
        '[acme]\nstored_bytes = "1G"',
    ],
)
def test_a_quota_that_means_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "quotas.toml").write_text(text)
    with pytest.raises(SettingsFileRefused, match=r"quotas\.toml: acme"):
        SettingsFile(tmp_path / "quotas.toml", quotas_of)
