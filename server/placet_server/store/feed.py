"""The feed of a tenant: events of all its actions, in the order of the txs that wrote them."""

from __future__ import annotations

import json
from typing import NamedTuple

from placet_server.model.query import FeedFilter
from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("feed")
STANDING, READ, PLACE, LAG, SUMMARIZE = (
    SQL[name] for name in ("standing", "read", "place", "lag", "summarize")
)
ID_MIN = "00000000-0000-0000-0000-000000000000"


class FeedPosition(NamedTuple):
    """After this event; or, with the defaults, before all events of the tx."""

    epoch: int
    xid: int
    action_id: str = ID_MIN
    sequence: int = 0


class FeedEvent(NamedTuple):
    """`body` is JSON."""

    xid: int
    action_id: str
    sequence: int
    type: str
    create_time_us: int
    body: str


class FeedPage(NamedTuple):
    """`below`: all before this xid is read, unless the page is full. `last_xid` of an epoch that is over. `floor_xid`:
    before it, something is deleted."""

    events: list[FeedEvent]
    below: int
    last_xid: int | None
    floor_xid: int


class Epoch(NamedTuple):
    epoch: int
    floor_xid: int
    last_xid: int | None


class Standing(NamedTuple):
    """`epochs`: oldest first, the last one is open. All txs before `settled_xid` are over."""

    epochs: tuple[Epoch, ...]
    settled_xid: int


class FeedLag(NamedTuple):
    """How long the feeds have been held up, by which backend (None: nobody, or a prepared tx)."""

    seconds: float = 0.0
    backend: int | None = None
    epoch: int = 1


async def standing(connection: Connection) -> Standing:
    rows = await connection.fetch(STANDING.sql)
    epochs = tuple(Epoch(row["epoch"], row["floor_xid"], row["last_xid"]) for row in rows)
    return Standing(epochs, rows[0]["settled_xid"])


async def read(
    connection: Connection,
    tenant: str,
    position: FeedPosition,
    wanted: FeedFilter,
    *,
    txs_max: int,
    count_max: int,
) -> FeedPage:
    """The next events within so many txs."""
    rows = await connection.fetch(
        READ.sql,
        *READ.arguments(
            tenant=tenant,
            epoch=position.epoch,
            xid=position.xid,
            action_id=position.action_id,
            sequence=position.sequence,
            types=list(wanted.types),
            by_action=bool(wanted.capabilities or wanted.labels),
            capabilities=list(wanted.capabilities),
            labels=json.dumps(wanted.labels),
            root_id=wanted.root_id or None,
            txs_max=txs_max,
            count_max=count_max,
        ),
    )
    events = [
        FeedEvent(
            row["written_xid"],
            str(row["action_id"]),
            row["sequence"],
            row["type"],
            row["create_time_us"],
            row["body"],
        )
        for row in rows
        if row["written_xid"] is not None
    ]
    return FeedPage(events, rows[0]["below"], rows[0]["last_xid"], rows[0]["floor_xid"])


async def find_place(
    connection: Connection, tenant: str, action_id: str, sequence: int
) -> FeedPosition | None:
    """After that event; None of one from before there was a feed."""
    arguments = PLACE.arguments(tenant=tenant, action_id=action_id, sequence=sequence)
    row = await connection.fetchrow(PLACE.sql, *arguments)
    return None if row is None else FeedPosition(row["epoch"], row["xid"], action_id, sequence)


async def read_lag(connection: Connection) -> FeedLag:
    row = await connection.fetchrow(LAG.sql)
    assert row is not None
    return FeedLag(max(row["seconds"] or 0.0, 0.0), row["backend"], row["epoch"])


async def summarize(connection: Connection) -> None:
    """Reading the newest costs less afterwards. Does nothing while a vacuum is at work."""
    await connection.fetchval(SUMMARIZE.sql)
