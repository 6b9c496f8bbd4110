"""Fill a database with settled actions, by copies of one that the server made itself."""

from __future__ import annotations

import asyncpg

BATCH = 100_000
# Older than anything that the run writes, in the form that the server gives its ids.
_ID = (
    "(substr(t.h, 1, 8) || '-' || substr(t.h, 9, 4) || '-7' || substr(t.r, 1, 3)"
    " || '-8' || substr(t.r, 4, 3) || '-' || substr(t.r, 7, 12))::uuid"
)
_TIME = "now() - make_interval(secs => ($1::bigint - t.n) / 1000.0 + 3600)"
_OF_ACTION = {
    "action_id": _ID,
    "lease_id": "gen_random_uuid()",
    "idempotency_key": "'preloaded-' || t.n",
    "key_digest": "sha256(convert_to('preloaded-' || t.n, 'UTF8'))",
    "create_time": _TIME,
    "start_time": _TIME,
    "settle_time": _TIME,
    "deadline": f"{_TIME} + interval '60 seconds'",
}
_OF_EVENT = {"action_id": _ID, "create_time": _TIME}
_NUMBERS = """
    (select n, md5(n::text) as r,
        lpad(to_hex((extract(epoch from now() - interval '1 hour') * 1000)::bigint - $1::bigint + n), 12, '0') as h
     from generate_series($2::bigint, $3::bigint) as n) as t
"""


async def preload(dsn: str, count: int) -> None:
    """The database holds at least one settled action already."""
    connection = await asyncpg.connect(dsn)
    try:
        model = await connection.fetchval(
            "select action_id from actions where settle_time is not null limit 1"
        )
        for first in range(1, count + 1, BATCH):
            last = min(first + BATCH - 1, count)
            # Their ids hold the time of the tx.
            async with connection.transaction():
                for table, replaced in (("actions", _OF_ACTION), ("events", _OF_EVENT)):
                    statement = await _copy(connection, table, replaced)
                    await connection.execute(statement, count, first, last, model, timeout=600)
        await connection.execute("vacuum analyze", timeout=600)
        await connection.execute("checkpoint", timeout=600)
    finally:
        await connection.close()


_WAITING_ACTION = {
    "action_id": _ID,
    "idempotency_key": "null",
    "key_digest": "null",
    "create_time": _TIME,
    "ready_time": _TIME,
}
_WAITING_PLACE = {"action_id": _ID, "ready_time": _TIME}


async def fill_queue(dsn: str, count: int) -> None:
    """The database holds one action that is queued for later; copies of it become ready now."""
    connection = await asyncpg.connect(dsn)
    try:
        model = await connection.fetchval("select action_id from queue_delayed limit 1")
        for first in range(1, count + 1, BATCH):
            last = min(first + BATCH - 1, count)
            async with connection.transaction():
                for table, source, replaced in (
                    ("actions", "actions", _WAITING_ACTION),
                    ("events", "events", _OF_EVENT),
                    ("queue_ready", "queue_delayed", _WAITING_PLACE),
                ):
                    statement = await _copy(connection, table, replaced, source)
                    await connection.execute(statement, count, first, last, model, timeout=600)
        await connection.execute("vacuum analyze", timeout=600)
        await connection.execute("checkpoint", timeout=600)
    finally:
        await connection.close()


# As the first durable write left them: admitted, taken by a server that then died.
_ORPHANED_ACTION = {
    "action_id": _ID,
    "idempotency_key": "null",
    "key_digest": "null",
    "create_time": _TIME,
    "start_time": _TIME,
    "state": "'RUNNING'",
    "lease_id": "gen_random_uuid()",
    "instance_id": "$5::uuid",
    "settle_time": "null",
    "output": "null",
    "effect": "'NOT_DONE'",
    "effect_key_expire_time": "now() + interval '1 day'",
}


async def fill_orphans(dsn: str, count: int) -> str:
    """The database holds one submitted action that has succeeded; copies of it run on a boot that fell silent, whose id
    is the answer."""
    connection = await asyncpg.connect(dsn)
    try:
        model = await connection.fetchval("select action_id from actions limit 1")
        columns = await _columns(connection, "instances")
        silent = {
            "boot_id": "gen_random_uuid()",
            "state": "'ALIVE'",
            "dead_time": "null",
            "started_time": "now() - interval '2 hours'",
            "heartbeat_time": "now() - interval '1 hour'",
        }
        values = ", ".join(silent.get(column, column) for column in columns)
        boot_id: str = await connection.fetchval(
            f"insert into instances ({', '.join(columns)}) select {values} from instances limit 1"
            " returning boot_id::text"
        )
        async with connection.transaction():
            statement = await _copy(connection, "actions", _ORPHANED_ACTION)
            await connection.execute(statement, count, 1, count, model, boot_id, timeout=600)
            statement = await _copy(connection, "events", _OF_EVENT)
            await connection.execute(statement, count, 1, count, model, timeout=600)
        await connection.execute("vacuum analyze", timeout=600)
        await connection.execute("checkpoint", timeout=600)
    finally:
        await connection.close()
    return boot_id


# Each copy's approval has the id of its action. One in a hundred names whom the model names.
_WAITING_APPROVAL = {
    "action_id": _ID,
    "approval_id": _ID,
    "create_time": _TIME,
    "expire_time": "now() + make_interval(secs => 3600 + t.n)",
    "next_time": "now() + make_interval(secs => 3600 + t.n)",
    "subjects": "case when t.n % 100 = 0 then m.subjects else '{nobody}' end",
}
_EVENT_OF_APPROVAL = _OF_EVENT | {"body": f"replace(m.body, $5::text, {_ID}::text)"}


async def fill_approvals(dsn: str, count: int) -> None:
    """The database holds one action that waits for people; copies of it do, too."""
    connection = await asyncpg.connect(dsn)
    try:
        row = await connection.fetchrow("select action_id, approval_id::text from approvals limit 1")
        assert row is not None
        model, approval = row
        for first in range(1, count + 1, BATCH):
            last = min(first + BATCH - 1, count)
            async with connection.transaction():
                actions = await _copy(connection, "actions", _WAITING_ACTION | {"approval_id": _ID})
                await connection.execute(actions, count, first, last, model, timeout=600)
                events = await _copy(connection, "events", _EVENT_OF_APPROVAL)
                await connection.execute(events, count, first, last, model, approval, timeout=600)
                approvals = await _copy(connection, "approvals", _WAITING_APPROVAL)
                await connection.execute(approvals, count, first, last, model, timeout=600)
        await connection.execute("vacuum analyze", timeout=600)
        await connection.execute("checkpoint", timeout=600)
    finally:
        await connection.close()


async def _copy(
    connection: asyncpg.Connection[asyncpg.Record], table: str, replaced: dict[str, str], source: str = ""
) -> str:
    columns = await _columns(connection, table)
    values = [replaced.get(column, f"m.{column}") for column in columns]
    return (
        f"insert into {table} ({', '.join(columns)}) select {', '.join(values)}"
        f" from {_NUMBERS} cross join (select * from {source or table} where action_id = $4::uuid) as m"
    )


async def _columns(connection: asyncpg.Connection[asyncpg.Record], table: str) -> list[str]:
    rows = await connection.fetch(
        "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0"
        " and not attisdropped and attgenerated = '' order by attnum",
        table,
    )
    return [row["attname"] for row in rows]
