"""The statements of every call find their rows by key: on an empty table, on a full one, in every kind of session."""

import json
import re
from typing import Any

import pytest

from placet_server.store import queries
from placet_server.store.connection import ConnectionOptions, connect
from placet_server.store.queries import Query
from tests.postgres import Database

pytestmark = pytest.mark.both_servers

ROWS = 20_000
HOT: dict[str, tuple[str, ...]] = {
    "action": (
        "admit",
        "advance",
        "admit_and_advance",
        "take_over_and_advance",
        "submit",
        "take_over_and_submit",
        "submit_begun",
        "advance_queued",
        "advance_step",
        "park",
        "get",
        "get_summary",
        "get_by_keys",
        "claim",
        "request_cancel",
        "request_cancel_many",
        "close_many",
        "close_queued",
    ),
    "event": ("read", "insert_lane_items", "list_receipts"),
    "queue": ("claim_batch", "peek", "claim_given", "promote", "set_expiry", "drop_orphans", "set_back"),
    "dead_letter": ("redrive",),
    "batch": ("append", "admit_child", "append_and_admit_child"),
    "lineage": ("find_step", "depth", "list_open_below"),
    "reconcile": ("note_finding",),
    "wake": ("wake",),
    "run": (
        "read_entries",
        "set_active",
        "find_written",
        "list_entries",
        "list_by_ids",
        "list_untold",
        "list_by_steps",
        "find_trace",
        "set_trace",
    ),
    "session": ("insert", "find_by_key", "get", "list_page", "lock", "lock_free", "close"),
    "session_token": ("get_token", "burn_token"),
    "session_run": (
        "is_over",
        "count_waiting",
        "add_run",
        "hold",
        "next_waiting",
        "release",
        "find_passed",
        "list_open",
        "list_places",
        "list_remembered",
        "list_said",
    ),
    "slot": ("take", "holds", "release", "release_lease", "charge", "refund"),
    "callback": ("list_due", "claim", "settle", "get", "redeliver", "give_back"),
}
# Found by an index made for them, over the few rows that it holds.
LOOPS: dict[str, tuple[str, ...]] = {
    "action": ("list_lost", "list_ownerless", "list_owned", "list_cancelled", "list_composed"),
    "queue": ("list_lines", "list_expired", "next_due", "summarize"),
    "dead_letter": ("list_page", "list_selected"),
    "ambiguous": ("find", "list_page"),
    "approval": ("claim_due", "count_pending"),
    "catalog": ("list_withdrawn",),
    "session": ("close_idle", "delete_closed"),
    "session_run": ("list_passed",),
    "retention": ("end_of_page", "trim_lanes", "delete_ended", "delete_boots", "delete_deliveries"),
}
# Read in sessions of the pool alone.
POOLED: dict[str, tuple[str, ...]] = {"feed": ("read",)}
TABLES = {
    "actions",
    "events",
    "lane_items",
    "queue_ready",
    "queue_delayed",
    "dead_letters",
    "lineage",
    "slots",
    "rates",
    "deliveries",
    "approvals",
    "wakes",
    "run_entries",
    "runs",
    "sessions",
    "session_runs",
}
KEYS = {
    "actions_pkey",
    "actions_key",
    "events_pkey",
    "lane_items_pkey",
    "queue_ready_pkey",
    "queue_ready_order",
    "queue_delayed_pkey",
    "queue_delayed_due",
    "queue_pauses_pkey",
    "dead_letters_pkey",
    "lineage_pkey",
    "lineage_root",
    "slots_pkey",
    "rates_pkey",
    "deliveries_id",
    "deliveries_due",
    "approvals_pkey",
    "reconciles_pkey",
    "wakes_pkey",
    "run_entries_pkey",
    "runs_pkey",
    "sessions_pkey",
    "sessions_key",
    "sessions_open",
    "sessions_owner",
    "session_runs_pkey",
    "session_runs_action",
    "session_runs_waiting",
}
LOOP_INDEXES = KEYS | {
    "actions_ambiguous",
    "actions_composed",
    "actions_running",
    "instances_pkey",
    "queue_counts_pkey",
    "queue_ready_expire",
    "queue_delayed_expire",
    "queue_delayed_order",
    "dead_letters_newest",
    "events_feed",
    "deliveries_ended",
    "approvals_next",
    "approvals_pending",
    "approvals_action",
    "sessions_expiry",
    "sessions_closed",
}

FILL = """
insert into actions (
    tenant, action_id, capability, version, contract_digest, effect_class, subject, caller, key_digest, key_ttl,
    input, input_digest, labels, on_caller_gone, durability, create_time, effect_marked, attempts_max, state, attempt,
    lease_id, instance_id, start_time, deadline,
    settle_time, effect, effect_begun, output, sequence, receipt_digest)
select 'acme', gen_random_uuid(), 'c', '1', '', 'UNSAFE', 's', '{}', sha256(n::text::bytea), '1 day',
    '{}', '', '{}', 'CANCEL', 'EPHEMERAL', now(), false, 1, 'SUCCEEDED', 1, gen_random_uuid(), gen_random_uuid(),
    now(), now(), now(), 'DONE', true, '1', 2, ''
from generate_series(1, $1::integer) as n
"""
FILL_EVENTS = """
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select tenant, action_id, s, 'admitted', now(), '{}', '' from actions, generate_series(1, 2) as s
"""
FILL_SESSIONS = """
with begun as (
    insert into sessions (
        tenant, session_id, agent, subject, state, title, labels, idle,
        create_time, update_time, expire_time, run_count)
    select 'acme', gen_random_uuid(), '', 's', case when n % 2 = 0 then 'OPEN' else 'CLOSED' end, '', '{}', '1 day',
        now(), now() - n * interval '1 minute', now() + n * interval '1 minute', 1
    from generate_series(1, 4000) as n
    returning tenant, session_id
)
insert into session_runs (tenant, session_id, number, action_id, waits)
select tenant, session_id, 1, gen_random_uuid(), false from begun
"""


async def plan(connection: Any, query: Query) -> list[dict[str, Any]]:
    """The nodes of the generic plan: what a session repeats for ever once it has settled on it."""
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute(f"prepare hot_{query.name} as {query.sql}")
    nulls = ", ".join(["null"] * len(query.parameters))
    text = await connection.fetchval(
        f"explain (format json) execute hot_{query.name}{f'({nulls})' if nulls else ''}"
    )
    await connection.execute(f"deallocate hot_{query.name}")
    nodes: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        nodes.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(json.loads(text)[0]["Plan"])
    return nodes


def faults(name: str, nodes: list[dict[str, Any]], indexes: set[str]) -> list[str]:
    """Whatever reads one of the large tables other than by these indexes."""
    found = []
    for node in nodes:
        if node["Node Type"] == "Bitmap Index Scan" and "Index Cond" not in node:
            whole = node["Index Name"]
            found += [f"{name}: all of {whole}"] if whole.startswith("queue_") else []
        index, table = node.get("Index Name"), node.get("Relation Name")
        if node["Node Type"] == "Seq Scan" and table in TABLES:
            found.append(f"{name}: seq scan of {table}")
        if (
            index is not None
            and index not in indexes
            and re.match("actions|events|lane|queue|dead|deliveries|wakes|run|session", index)
        ):
            found.append(f"{name}: {index}")
        condition = node.get("Index Cond", "")
        if index == "actions_pkey" and "action_id" not in condition:
            found.append(f"{name}: {index} by {condition or 'nothing'}")
    return found


async def all_faults(connection: Any, names: dict[str, tuple[str, ...]], indexes: set[str]) -> list[str]:
    return [
        fault
        for stem, queries_of in names.items()
        for name in queries_of
        for fault in faults(name, await plan(connection, queries.load(stem)[name]), indexes)
    ]


async def fill(connection: Any) -> None:
    await connection.execute("set statement_timeout = 0")
    await connection.execute(FILL, ROWS)
    await connection.execute(FILL_EVENTS)
    await connection.execute(FILL_SESSIONS)


@pytest.mark.parametrize("pinned", [True, False])
async def test_empty_tables_without_statistics_are_read_by_key(database: Database, pinned: bool) -> None:
    connection = await connect(database.dsn, ConnectionOptions(pinned_plans=pinned))
    found = await all_faults(connection, HOT, KEYS)
    await connection.close()
    assert [] == found


async def test_a_tenant_with_many_actions_is_read_by_key_before_and_after_analyze(database: Database) -> None:
    """And a page of its list reads a bounded part of it."""
    filling = await connect(database.dsn)
    await fill(filling)
    for analyzed in (False, True):
        if analyzed:
            await filling.execute("analyze actions, events, lane_items, sessions, session_runs")
        for pinned in (True, False):
            connection = await connect(database.dsn, ConnectionOptions(pinned_plans=pinned))
            found = await all_faults(connection, HOT, KEYS)
            found += await all_faults(connection, LOOPS, LOOP_INDEXES) if analyzed else []
            found += [] if pinned else await all_faults(connection, POOLED, LOOP_INDEXES)
            await connection.close()
            assert (analyzed, pinned, []) == (analyzed, pinned, found)
    nodes = await plan(filling, queries.load("action")["list_composed"])
    told = {node.get("Index Name") for node in nodes if node.get("Relation Name") == "actions"}
    assert {"actions_composed", "actions_pkey"} == told
    nodes = await plan(filling, queries.load("action")["list"])
    await filling.close()
    scans = [node for node in nodes if node.get("Relation Name") == "actions"]
    assert ["actions_pkey"] == [node.get("Index Name") for node in scans]
    assert "tenant" in scans[0]["Index Cond"]
    assert any(node["Node Type"] == "Limit" for node in nodes)
