"""What runs remember, and have spent. One typed function per query; `append` is the writer's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import asyncpg
import orjson

from placet_server.model.document import read
from placet_server.model.entry import EntryRow, EntryType
from placet_server.model.usage import Budget, Counters
from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("run")

_KEYS = frozenset({"run_entries_pkey", "runs_pkey"})
_COUNTERS = tuple(each.name for each in fields(Counters))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a run has spent so far, and may spend. `ordinal`: of its newest entry. `is_calling`: that is an answer, and
    it has not succeeded with it.
    """

    ordinal: int
    model: str
    budget: Budget
    counters: Counters
    is_calling: bool = False


class UntoldChild(NamedTuple):
    step: str
    action_id: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class Untold:
    """A run whose newest entry is an answer: `is_over`, it has ended with it. `answers`: that one, where anything is
    held for the calls that it makes; `children`: all tries of these.
    """

    action_id: str
    is_over: bool
    answers: list[str] = field(default_factory=list)
    children: list[UntoldChild] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(EntryRow):
    """With when it was written."""

    create_time_us: int


class Remembered(NamedTuple):
    """What a run goes on from, in order: its first entry, and all since it was compacted. `active_ms`: how long it has
    run, in stretches that are over. `is_redriven`: people have asked for more since its newest entry.
    """

    entries: list[EntryRow]
    active_ms: int = 0
    is_redriven: bool = False


class RunTrace(NamedTuple):
    """Where its spans belong, in hex: the trace, the span that all its stretches are below, and that of the newest."""

    trace_id: str
    above_id: str
    newest_id: str


class EntryStanding(NamedTuple):
    """The lease that the action runs under, and the digest of one of its entries, in hex; None: there is none."""

    lease_id: str | None
    digest: str | None


def is_there(error: Exception) -> bool:
    """A statement failed since it was sent before, and that one, still at work then, has written the entry."""
    return isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name in _KEYS


async def read_entries(connection: Connection, tenant: str, action_id: str) -> Remembered:
    """The first, and all from the newest compaction on; empty before it has opened."""
    query = SQL["read_entries"]
    rows = await connection.fetch(query.sql, *query.arguments(tenant=tenant, action_id=action_id))
    entries = [
        EntryRow(
            ordinal=r["ordinal"],
            type=EntryType(r["type"]),
            turn=r["turn"],
            attempt=r["attempt"],
            body=r["body"],
        )
        for r in rows
    ]
    return Remembered(entries, rows[0]["active_ms"], rows[0]["is_redriven"]) if rows else Remembered([])


async def set_active(
    connection: Connection, tenant: str, action_id: str, *, lease_id: str, active_ms: int
) -> None:
    """Never less than it was, and nothing for who has lost the lease."""
    query = SQL["set_active"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, lease_id=lease_id, active_ms=active_ms)
    await connection.execute(query.sql, *arguments)


async def find_written(connection: Connection, tenant: str, action_id: str, ordinal: int) -> EntryStanding:
    query = SQL["find_written"]
    row = await connection.fetchrow(
        query.sql, *query.arguments(tenant=tenant, action_id=action_id, ordinal=ordinal)
    )
    assert row is not None, "it has no from"
    return EntryStanding(None if row["lease_id"] is None else str(row["lease_id"]), row["digest"])


async def list_entries(
    connection: Connection,
    tenant: str,
    action_id: str,
    *,
    after_ordinal: int,
    count_max: int,
    bytes_max: int,
) -> list[StoredEntry]:
    """In order, those that a compaction stands for, too. The page ends with the one that reaches `bytes_max`."""
    query = SQL["list_entries"]
    arguments = query.arguments(
        tenant=tenant,
        action_id=action_id,
        after_ordinal=after_ordinal,
        count_max=count_max,
        bytes_max=bytes_max,
    )
    return [
        StoredEntry(
            ordinal=r["ordinal"],
            type=EntryType(r["type"]),
            turn=r["turn"],
            attempt=r["attempt"],
            body=r["body"],
            create_time_us=r["create_time_us"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def list_by_steps(
    connection: Connection, tenant: str, parent_id: str, steps: Sequence[str]
) -> list[tuple[str, str]]:
    """Step and action id of all tries of these steps of an action."""
    query = SQL["list_by_steps"]
    arguments = query.arguments(tenant=tenant, parent_id=parent_id, steps=list(steps))
    return [(r["step"], r["action_id"]) for r in await connection.fetch(query.sql, *arguments)]


async def map_by_ids(connection: Connection, tenant: str, action_ids: Sequence[str]) -> dict[str, StoredRun]:
    """By action id, as their entries say; those that have not opened are not in it."""
    query = SQL["list_by_ids"]
    rows = await connection.fetch(query.sql, *query.arguments(tenant=tenant, action_ids=list(action_ids)))
    return {
        r["action_id"]: StoredRun(
            ordinal=r["ordinal"],
            model=r["model"],
            budget=read(Budget, orjson.loads(r["budget"])),
            counters=Counters(**{name: r[name] for name in _COUNTERS}),
            is_calling=r["is_calling"],
        )
        for r in rows
    }


async def list_untold(
    connection: Connection, tenant: str, action_ids: Sequence[str], *, calls_max: int
) -> list[Untold]:
    """What of these runs is in no entry of theirs yet, but that their newest answer asks for it."""
    query = SQL["list_untold"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids), calls_max=calls_max)
    found: dict[str, Untold] = {}
    for r in await connection.fetch(query.sql, *arguments):
        untold = found.setdefault(r["action_id"], Untold(r["action_id"], r["is_over"]))
        if r["body"] is not None:
            untold.answers.append(r["body"])
        if r["step"] is not None:
            untold.children.append(UntoldChild(r["step"], r["child_id"], r["child_is_over"]))
    return list(found.values())


async def find_trace(connection: Connection, tenant: str, action_id: str) -> RunTrace | None:
    """None: nobody traces it, or there is no such run."""
    query = SQL["find_trace"]
    text = await connection.fetchval(query.sql, *query.arguments(tenant=tenant, action_id=action_id))
    return None if text is None else RunTrace(*text.split("-"))


async def set_trace(
    connection: Connection, tenant: str, action_id: str, trace: RunTrace, *, lease_id: str
) -> None:
    """Nothing for who has lost the lease."""
    query = SQL["set_trace"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, lease_id=lease_id, trace="-".join(trace))
    await connection.execute(query.sql, *arguments)
