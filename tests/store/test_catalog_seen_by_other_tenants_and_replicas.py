import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from placet_server.core.admission.catalog import Catalog
from placet_server.core.execution.handlers import HandlerTable
from placet_server.model.agent import AgentSpec, ToolChoice
from placet_server.model.ask import INPUT_SCHEMA_TEXT
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability, CapabilityKind, Presentation
from placet_server.model.contract import Contract, EffectClass, contract_for
from placet_server.model.errors import ManifestRefused, NotFound, StaleDigest, StoreUnavailable
from placet_server.model.gate_errors import CapabilityNotFound, HandlerNotFound
from placet_server.model.manifest import HandlerClaims, Manifest
from placet_server.model.run_errors import AgentUnavailable
from placet_server.store import catalog as rows
from placet_server.store.connection import Connection, ConnectionOptions
from placet_server.store.pool import Pool
from tests.postgres import Database

READ = contract_for(EffectClass.READ)
ANN = Caller(tenant="acme", subject="ann")
BOB = Caller(tenant="other", subject="bob")
WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


class Anything(dict[tuple[str, str], HandlerClaims]):
    """An app that serves whatever it is asked for."""

    def __contains__(self, _: object) -> bool:
        return True

    def get(self, _: object, default: Any = None) -> Any:
        return HandlerClaims()


class Claimed(HandlerTable):
    """Handlers that are nothing but what they claim."""

    def __init__(self, claimed: Mapping[tuple[str, str], HandlerClaims]) -> None:
        super().__init__()
        self._claimed = claimed

    def claims(self) -> Mapping[tuple[str, str], HandlerClaims]:  # type: ignore[override]
        return self._claimed


def tool(name: str, version: str = "1", contract: Contract = READ, **changes: Any) -> Capability:
    return replace(Capability(name=name, version=version, contract=contract), **changes)


def manifest(name: str, *capabilities: Capability) -> Manifest:
    return Manifest(name=name, version="1", capabilities=capabilities)


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    async with Pool(database.dsn, timeout_seconds=10.0) as opened:
        yield opened


def catalog_of(
    pool: Pool,
    handlers: Mapping[tuple[str, str], HandlerClaims] | None = None,
    *,
    refresh_seconds: float = 3600.0,
) -> Catalog:
    table = Claimed(Anything() if handlers is None else handlers)
    return Catalog(pool, handlers=table, refresh_seconds=refresh_seconds)


async def test_an_admitted_capability_resolves_with_and_without_its_version(pool: Pool) -> None:
    catalog = catalog_of(pool)
    find = tool("orders.find", input_schema='{"type":"object"}')
    result = await catalog.admit(ANN, manifest("shop", find, tool("orders.find", "2")))
    assert result.changed
    assert () == result.problems
    current = await catalog.resolve("acme", "orders.find")
    pinned = await catalog.resolve("acme", "orders.find", "1")
    assert "2" == current.capability.version
    assert find == pinned.capability
    assert find.contract_digest == pinned.contract_digest
    assert ["type"] == [v.rule for v in pinned.capability.compiled_input.violations(1)]


async def test_a_tenant_never_sees_the_capabilities_of_another(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("other", "orders.find")
    with pytest.raises(CapabilityNotFound):
        await catalog.get_capability("other", "orders.find")
    with pytest.raises(NotFound):
        await catalog.get_manifest("other", "shop")
    assert [] == await catalog.list_manifests("other", page_size=10)
    assert [] == await catalog.list_capabilities("other", page_size=10)
    await catalog.admit(BOB, manifest("shop", tool("orders.find", contract=contract_for(EffectClass.UNSAFE))))
    assert EffectClass.READ is (await catalog.resolve("acme", "orders.find")).capability.contract.effect


async def test_what_the_server_offers_is_seen_by_all_and_never_shadowed(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit_local(manifest("core", tool("orders.find")))
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("shop", tool("orders.find", "9")))
    assert ["name_owned_elsewhere"] == [v.rule for v in refused.value.violations]
    assert "-" == (await catalog.resolve("acme", "orders.find")).tenant
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("acme", "orders.find", "9")


def agent(name: str, *tools: str) -> Capability:
    return Capability(
        name=name,
        version="1",
        kind=CapabilityKind.AGENT,
        input_schema=INPUT_SCHEMA_TEXT,
        contract=contract_for(EffectClass.COMPOSED),
        agent=AgentSpec(model="fast", tools=tuple(ToolChoice(name=tool) for tool in tools)),
    )


async def test_an_agent_finds_what_its_tenant_and_the_server_have_and_no_more(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit_local(manifest("core", tool("core.find"), agent("core.helper", "mail.send")))
    await catalog.admit(ANN, manifest("shop", tool("orders.find"), tool("orders.find", "2")))
    await catalog.admit(BOB, manifest("mail", tool("mail.send"), tool("mail.drop")))
    helper = agent("help.helper", "core.find", "orders.find", "orders.*", "mail.send", "mail.*", "no.such")
    for caller, codes in (
        (ANN, {3: "tool_unknown", 4: "tool_pattern_empty", 5: "tool_unknown"}),
        (BOB, {1: "tool_unknown", 2: "tool_pattern_empty", 5: "tool_unknown"}),
    ):
        looked = await catalog.admit(caller, manifest("help", helper), validate_only=True)
        places = {f"capabilities[0].agent.tools[{index}].name": code for index, code in codes.items()}
        assert places == {each.path: each.code for each in looked.problems}
    # What was withdrawn is not there.
    named = agent("help.helper", "mail.drop")
    assert () == (await catalog.admit(BOB, manifest("help", named), validate_only=True)).problems

    async def note(_: Connection) -> None:
        pass

    await catalog.withdraw(BOB, "mail.drop", "", ["1"], "moved", note)
    (problem,) = (await catalog.admit(BOB, manifest("help", named), validate_only=True)).problems
    assert "tool_unknown" == problem.code


async def test_an_agent_does_not_find_what_its_own_manifest_drops(pool: Pool) -> None:
    catalog = catalog_of(pool)
    helper = agent("help.helper", "orders.find")
    await catalog.admit(ANN, manifest("shop", tool("orders.find"), helper))
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("shop", helper))
    assert ["tool_unknown"] == [each.rule for each in refused.value.violations]
    assert helper.agent is not None
    # The version stays in service for whoever names it.
    pinned = replace(helper.agent, tools=(ToolChoice(name="orders.find", version="1"),))
    await catalog.admit(ANN, manifest("shop", replace(helper, version="2", agent=pinned)))


async def test_an_agent_is_kept_listed_and_not_run(pool: Pool) -> None:
    catalog = catalog_of(pool)
    helper = agent("help.helper", "orders.find")
    await catalog.admit(ANN, manifest("shop", tool("orders.find"), helper))
    entry = await catalog.get_capability("acme", "help.helper")
    assert (helper, helper.contract_digest, False) == (
        entry.stored.capability,
        entry.stored.contract_digest,
        entry.served,
    )
    for kind, names in (
        (None, ["help.helper", "orders.find"]),
        (CapabilityKind.AGENT, ["help.helper"]),
        (CapabilityKind.TOOL, ["orders.find"]),
        (CapabilityKind.HUMAN, []),
    ):
        listed = await catalog.list_capabilities("acme", page_size=10, kind=kind)
        assert names == [each.stored.capability.name for each in listed]
    for anywhere in (False, True):
        with pytest.raises(AgentUnavailable) as refused:
            await catalog.resolve("acme", "help.helper", anywhere=anywhere)
        assert {"agent": "help.helper", "problem": "extra_missing"} == refused.value.metadata()
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("other", "help.helper")


async def test_an_agent_that_may_do_more_is_admitted_with_a_warning(pool: Pool) -> None:
    catalog = catalog_of(pool)
    shop = (tool("orders.find"), tool("orders.pay"))
    await catalog.admit(ANN, manifest("shop", *shop, agent("help.helper", "orders.find")))
    more = replace(agent("help.helper", "orders.find", "orders.pay"), version="2")
    result = await catalog.admit(ANN, manifest("shop", *shop, more))
    assert [("capabilities[2].agent.tools[1].name", "tools_added", True)] == [
        (each.path, each.code, each.warning) for each in result.problems
    ]
    assert result.problems == result.weakened
    # Under its old version it is another contract.
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("shop", *shop, replace(more, version="1")))
    assert ["version_changed"] == [each.rule for each in refused.value.violations]


async def test_a_name_that_the_server_takes_later_hides_the_tenants(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find", "9")))
    await catalog.admit_local(manifest("core", tool("orders.find", "1")))
    assert "1" == (await catalog.resolve("acme", "orders.find")).capability.version
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("acme", "orders.find", "9")
    listed = await catalog.list_capabilities("acme", page_size=10)
    assert [("-", "1")] == [(e.stored.tenant, e.stored.capability.version) for e in listed]
    assert "-" == (await catalog.get_capability("acme", "orders.find")).stored.tenant


async def test_a_known_capability_without_a_handler_is_no_unknown_capability(pool: Pool) -> None:
    await catalog_of(pool).admit_local(manifest("core", tool("orders.find")))
    other_replica = catalog_of(pool, {})
    with pytest.raises(HandlerNotFound):
        await other_replica.resolve("acme", "orders.find")
    assert not (await other_replica.get_capability("acme", "orders.find")).served


async def test_each_replica_of_a_rolling_upgrade_answers_with_the_version_it_has(pool: Pool) -> None:
    old = catalog_of(pool, {("orders.find", "1"): HandlerClaims()}, refresh_seconds=0.0)
    new = catalog_of(pool, {("orders.find", "2"): HandlerClaims()}, refresh_seconds=0.0)
    await old.admit_local(manifest("core", tool("orders.find", "1")))
    await new.admit_local(manifest("core", tool("orders.find", "2")))
    assert "1" == (await old.resolve("acme", "orders.find")).capability.version
    assert "2" == (await new.resolve("acme", "orders.find")).capability.version
    with pytest.raises(HandlerNotFound):
        await new.resolve("acme", "orders.find", "1")


async def test_an_admission_is_seen_at_once_here_and_after_the_interval_elsewhere(pool: Pool) -> None:
    here, elsewhere = catalog_of(pool), catalog_of(pool, refresh_seconds=0.0)
    for catalog in (here, elsewhere):
        with pytest.raises(CapabilityNotFound):
            await catalog.resolve("acme", "orders.find")
    await here.admit(ANN, manifest("shop", tool("orders.find")))
    for catalog in (here, elsewhere):
        assert "1" == (await catalog.resolve("acme", "orders.find")).capability.version
    await here.admit(ANN, manifest("shop", tool("orders.find", "2")))
    for catalog in (here, elsewhere):
        assert "2" == (await catalog.resolve("acme", "orders.find")).capability.version


async def test_within_the_interval_a_known_capability_costs_no_query(pool: Pool, database: Database) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    first = await catalog.resolve("acme", "orders.find")
    await pool.close()
    assert first is await catalog.resolve("acme", "orders.find")


async def test_a_version_that_is_no_longer_offered_stays_for_the_actions_pinned_to_it(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find"), tool("orders.list")))
    result = await catalog.admit(ANN, manifest("shop", tool("orders.list")))
    assert ["capability_removed"] == [p.code for p in result.problems]
    assert "1" == (await catalog.resolve("acme", "orders.find", "1")).capability.version
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("acme", "orders.find")


async def test_a_refused_manifest_changes_nothing_and_names_every_problem(
    pool: Pool, database: Database
) -> None:
    catalog = catalog_of(pool)
    first = await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    bad = replace(contract_for(EffectClass.IDEMPOTENT), effect_key_ttl_seconds=None, attempts_max=0)
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(
            ANN, manifest("shop", tool("orders.new"), *(tool(f"t{i}", contract=bad) for i in range(9)))
        )
    assert 18 == len(refused.value.violations)
    assert "manifest.capabilities[1].contract.effect_key_ttl" == refused.value.violations[0].field
    assert first.digest == (await catalog.get_manifest("acme", "shop")).digest
    with pytest.raises(CapabilityNotFound):
        await catalog.resolve("acme", "orders.new")


async def test_validating_only_reports_the_same_and_writes_no_row(pool: Pool, database: Database) -> None:
    catalog = catalog_of(pool)
    good, bad = manifest("shop", tool("orders.find")), manifest("shop", tool("Orders"))
    result = await catalog.admit(ANN, good, validate_only=True)
    assert (good.digest(), (), False) == (result.digest, result.problems, result.changed)
    reported = await catalog.admit(ANN, bad, validate_only=True)
    assert ["capability_name"] == [p.code for p in reported.problems]
    async with pool.connection() as connection:
        for table in ("catalog_revisions", "manifests", "capabilities"):
            assert 0 == await connection.fetchval(f"select count(*) from {table}")


async def test_the_same_manifest_again_changes_nothing(pool: Pool) -> None:
    catalog = catalog_of(pool)
    shop = manifest("shop", tool("orders.find"))
    await catalog.admit(ANN, shop)
    async with pool.connection() as connection:
        before = await rows.get_revision(connection, "acme")
        again = await catalog.admit(ANN, shop)
        assert not again.changed
        assert before == await rows.get_revision(connection, "acme")


async def test_a_version_never_changes_its_contract_but_may_its_words(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("shop", tool("orders.find", output_schema="true")))
    assert ["version_changed"] == [v.rule for v in refused.value.violations]
    reworded = tool("orders.find", presentation=Presentation(title="Find"))
    assert (await catalog.admit(ANN, manifest("shop", reworded))).changed
    assert "Find" == (await catalog.resolve("acme", "orders.find")).capability.presentation.title


async def test_a_version_that_was_dropped_may_not_come_back_different(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find", "1")))
    await catalog.admit(ANN, manifest("shop", tool("orders.find", "2")))
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("shop", tool("orders.find", "1", output_schema="true")))
    assert ["version_changed"] == [v.rule for v in refused.value.violations]


async def test_a_name_belongs_to_one_manifest(pool: Pool) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    with pytest.raises(ManifestRefused) as refused:
        await catalog.admit(ANN, manifest("stock", tool("orders.find", "2")))
    assert ["name_owned_elsewhere"] == [v.rule for v in refused.value.violations]


async def test_a_stale_expectation_is_refused(pool: Pool) -> None:
    catalog = catalog_of(pool)
    first = await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    second = manifest("shop", tool("orders.find", "2"))
    await catalog.admit(ANN, second, expected_digest=first.digest)
    with pytest.raises(StaleDigest) as refused:
        await catalog.admit(ANN, manifest("shop", tool("orders.find", "3")), expected_digest=first.digest)
    assert second.digest() == refused.value.actual


async def test_of_two_admissions_at_once_that_expect_the_same_one_wins(pool: Pool) -> None:
    catalogs = [catalog_of(pool), catalog_of(pool)]
    first = await catalogs[0].admit(ANN, manifest("shop", tool("orders.find")))
    results = await asyncio.gather(
        *(
            catalog.admit(ANN, manifest("shop", tool("orders.find", version)), expected_digest=first.digest)
            for catalog, version in zip(catalogs, ("2", "3"), strict=True)
        ),
        return_exceptions=True,
    )
    assert ["AdmitResult", "StaleDigest"] == sorted(type(result).__name__ for result in results)


async def test_two_manifests_at_once_cannot_both_take_a_name(pool: Pool) -> None:
    results = await asyncio.gather(
        *(catalog_of(pool).admit(ANN, manifest(name, tool("orders.find"))) for name in ("shop", "stock")),
        *(catalog_of(pool).admit_local(manifest(name, tool("orders.list"))) for name in ("core", "more")),
        return_exceptions=True,
    )
    assert ["AdmitResult"] * 2 + ["ManifestRefused"] * 2 == sorted(
        type(result).__name__ for result in results
    )


async def test_a_tenant_waits_for_the_server_that_is_taking_a_name(pool: Pool, database: Database) -> None:
    blocker = await asyncpg.connect(database.dsn)
    try:
        async with blocker.transaction():
            await rows.lock(blocker, "-", None)
            admission = asyncio.ensure_future(
                catalog_of(pool).admit(ANN, manifest("shop", tool("orders.find")))
            )
            async with pool.connection() as connection, asyncio.timeout(5):
                while not await connection.fetchval(WAITING):
                    assert not admission.done()
            await rows.put_manifest(blocker, "-", manifest("core", tool("orders.find")), "server", None)
            await rows.put_capabilities(blocker, "-", manifest("core", tool("orders.find")), "server", None)
        with pytest.raises(ManifestRefused):
            await admission
    finally:
        await blocker.close()


async def test_who_cannot_have_the_lock_in_time_is_told_to_come_back(pool: Pool, database: Database) -> None:
    impatient = ConnectionOptions(lock_timeout_seconds=0.05)
    async with Pool(database.dsn, options=impatient) as other, pool.tx() as connection:
        await rows.lock(connection, "acme", None)
        with pytest.raises(StoreUnavailable):
            await catalog_of(other).admit(ANN, manifest("shop", tool("orders.find")))


async def test_pages_follow_each_other_without_gap_or_repeat(pool: Pool) -> None:
    catalog = catalog_of(pool)
    names = ["a", "a.b", "a_b", "ab", "b.x", "b.y", "b_z", "c"]
    for i, name in enumerate(names):
        pair = manifest(f"m{i}", tool(name), tool(name, "2"))
        await (catalog.admit(ANN, pair) if i % 2 else catalog.admit_local(pair))
    seen: list[tuple[str, str]] = []
    after = ("", "")
    while page := await catalog.list_capabilities("acme", page_size=3, after=after):
        seen += [(e.stored.capability.name, e.stored.capability.version) for e in page]
        after = seen[-1]
    assert [(name, version) for name in sorted(names) for version in ("1", "2")] == seen
    prefixed = await catalog.list_capabilities("acme", page_size=100, name_prefix="b.")
    assert ["b.x", "b.x", "b.y", "b.y"] == [e.stored.capability.name for e in prefixed]
    manifests = await catalog.list_manifests("acme", page_size=5)
    manifests += await catalog.list_manifests("acme", page_size=5, after_name=manifests[-1].name)
    assert [f"m{i}" for i in range(8)] == [m.name for m in manifests]
    assert {2} == {m.capability_count for m in manifests}


@pytest.mark.parametrize("prefix", ["%", "_", "a\\", "'", "\u2603"])
async def test_a_prefix_is_text_and_no_pattern(pool: Pool, prefix: str) -> None:
    catalog = catalog_of(pool)
    await catalog.admit(ANN, manifest("shop", tool("orders.find")))
    assert [] == await catalog.list_capabilities("acme", page_size=10, name_prefix=prefix)


async def test_resolving_reads_by_primary_key_on_an_empty_table(pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute("set plan_cache_mode = force_generic_plan")
        for query, parameters, index in (
            (rows.GET_CAPABILITY, 3, "capabilities_pkey"),
            (rows.GET_CURRENT_CAPABILITY, 2, "capabilities_"),
            (rows.GET_REVISION, 1, "catalog_revisions_pkey"),
        ):
            await connection.execute(f"prepare probe as {query.sql}")
            arguments = ", ".join(["'x'"] * parameters)
            plan = "\n".join(row[0] for row in await connection.fetch(f"explain execute probe({arguments})"))
            await connection.execute("deallocate probe")
            assert index in plan
            assert "Seq Scan" not in plan
