"""Letting an action wait for people anew. Both functions take a connection and leave the tx to their caller."""

from __future__ import annotations

from datetime import datetime

from placet_server.model.action import PRIORITY_DEFAULT, QUEUE_DEFAULT, Action
from placet_server.store import queries
from placet_server.store.batch_item import ApprovalPart
from placet_server.store.connection import Connection

SQL = queries.load("recheck")


async def move_to_waiting(
    connection: Connection, action: Action, part: ApprovalPart, verdict_digest: str, now: datetime
) -> bool:
    """False: it has lost its lease, is to be cancelled, or may have done something."""
    query = SQL["move_to_waiting"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        lease_id=action.lease_id,
        kind=part["kind"],
        approval_id=part["approval_id"],
        verdict_digest=bytes.fromhex(verdict_digest),
        event_body=part["waiting_body"],
        queue_default=QUEUE_DEFAULT,
        priority_default=PRIORITY_DEFAULT,
        now=now,
    )
    return not (await connection.execute(query.sql, *arguments)).endswith(" 0")


async def put_approval(
    connection: Connection,
    action: Action,
    part: ApprovalPart,
    *,
    predecessor_id: str | None,
    difference: str,
    now: datetime,
) -> None:
    """No other one of the action is open."""
    query = SQL["put_approval"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        capability=action.capability,
        subject=action.requester.subject,
        predecessor_id=predecessor_id,
        difference=difference,
        now=now,
        approval_id=part["approval_id"],
        kind=part["kind"],
        digest=bytes.fromhex(part["digest"]),
        terms=part["terms"],
        title=part["title"],
        summary=part["summary"],
        subjects=part["subjects"],
        roles=part["roles"],
        groups=part["groups"],
        ttl_seconds=part["ttl_seconds"],
        escalate_seconds=part["escalate_seconds"],
    )
    await connection.execute(query.sql, *arguments)
