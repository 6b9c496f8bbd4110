"""Actions that wait in line, as the writer's statements put them there."""

from __future__ import annotations

from typing import Any

import orjson

from placet_server.model.action import Action
from placet_server.model.line import Line
from placet_server.store import action as actions
from placet_server.store import instance, queries
from placet_server.store.connection import Connection, ConnectionOptions, connect
from placet_server.store.queue import LineShare, Picked, claim_batch
from tests.postgres import Database

SQL = queries.load("action")
LINE = Line("default", "shop.pack", "1", "acme")
NOWHERE: dict[str, list[int]] = {"queue_ready": [], "queue_delayed": [], "dead_letters": []}


async def open_boot(database: Database) -> tuple[Connection, str]:
    connection = await connect(database.dsn, ConnectionOptions(pinned_plans=True))
    boot = instance.this_boot("1")
    await instance.register(connection, boot)
    return connection, boot.boot_id


async def read(connection: Connection, number: int) -> Action:
    action = await actions.get(connection, "acme", id_of(number), full=True)
    assert action is not None
    return action


def id_of(number: int) -> str:
    return f"0190a0a0-0000-7000-8000-{number:012d}"


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "tenant": "acme",
        "action_id": id_of(number),
        "capability": "shop.pack",
        "version": "1",
        "contract_digest": "cd" * 32,
        "effect_class": "IDEMPOTENT",
        "subject": "alice",
        "caller": '{"kind":"USER","roles":[],"scopes":[]}',
        "idempotency_key": f"k{number}",
        "key_digest": f"{number:064x}",
        "key_ttl_seconds": 3600.0,
        "input": "{}",
        "input_digest": "ef" * 32,
        "labels": "{}",
        "on_caller_gone": "DETACH",
        "durability": "EPHEMERAL",
        "predecessor_id": None,
        "effect_marked": False,
        "effect_key_ttl_seconds": 600.0,
        "attempts_max": 3,
        "queue": "default",
        "priority": 5,
        "attempt_timeout_seconds": None,
        "queue_delay_seconds": None,
        "retry": None,
        "ready_time_us": None,
        "delay_seconds": None,
    } | changes


async def submit(connection: Connection, boot_id: str, *rows: dict[str, Any]) -> list[Any]:
    query = SQL["submit"]
    arguments = query.arguments(admissions=orjson.dumps(rows).decode(), boot_id=boot_id, now=None)
    return list(await connection.fetch(query.sql, *arguments))


async def claim(
    connection: Connection, boot_id: str, count_max: int = 10, line: Line = LINE, **changes: Any
) -> list[Picked]:
    share = LineShare(
        line=line, count_max=count_max, timeout_default_seconds=60.0, timeout_max_seconds=90.0, **changes
    )
    return await claim_batch(connection, [share], boot_id=boot_id, input_bytes_max=1000, now=None)


def claimed(picked: list[Picked]) -> list[int]:
    """The numbers of what runs now."""
    return sorted(int(p.action_id[-12:]) for p in picked if p.action is not None)


async def advance_queued(connection: Connection, picked: Picked, **changes: Any) -> int:
    """As the lease holder gives the action back; how many rows moved."""
    assert picked.action is not None
    return len(await advance(connection, picked.action, **changes))


async def advance(
    connection: Connection, action: Action, *, statement: str = "advance_queued", **changes: Any
) -> list[Any]:
    """The same, and what the writer hears."""
    document = {
        "tenant": action.requester.tenant,
        "action_id": action.action_id,
        "lease_id": action.lease_id,
        "state": "QUEUED",
        "effect": "NOT_DONE",
        "effect_unknown": False,
        "event_type": "requeued",
        "event_body": "{}",
        "dead_letter": False,
        "queue": "default",
        "priority": 5,
        "capability": "shop.pack",
        "version": "1",
        "claim_delay_seconds": 0.0,
        "expire_time_us": None,
    } | changes
    query = SQL[statement]
    arguments = query.arguments(
        advances=orjson.dumps([document]).decode(), boot_id=action.instance_id, now=None
    )
    return list(await connection.fetch(query.sql, *arguments))


async def places(connection: Connection) -> dict[str, list[int]]:
    """The numbers of the actions in each side table."""
    found = {}
    for table in ("queue_ready", "queue_delayed", "dead_letters"):
        ids = await connection.fetch(f"select action_id::text from {table}")
        found[table] = sorted(int(r[0][-12:]) for r in ids)
    return found


async def kill(connection: Connection, boot_id: str, *numbers: int) -> None:
    """Submitted, tried and given up."""
    await submit(connection, boot_id, *(row(n, queue="slow" if n % 2 else "default") for n in numbers))
    for line in (LINE, LINE._replace(queue="slow")):
        for picked in await claim(connection, boot_id, 100, line):
            assert picked.action is not None
            await advance_queued(
                connection,
                picked,
                state="EXHAUSTED",
                reason="RETRY_BUDGET",
                event_type="settled",
                dead_letter=True,
                queue=picked.action.queue,
            )
