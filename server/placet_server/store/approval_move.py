"""What moves an approval, and its action with it: within a tx that has locked the action (`lock_action`), then the
approval (`lock`), but for what says otherwise. One typed function per query of approval.sql.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.model.decision import Approval, ApprovalState, Decision
from placet_server.store.approval import SQL
from placet_server.store.approval_record import read_approval
from placet_server.store.connection import Connection


class Fact(NamedTuple):
    """An event to be told: its type and its body as JSON."""

    type: str
    body: str


class Due(NamedTuple):
    """An approval that somebody has to look at."""

    tenant: str
    approval_id: str
    action_id: str


class Consumed(NamedTuple):
    """`is_held`: the lease is the action's still."""

    is_held: bool
    is_consumed: bool


async def lock_action(connection: Connection, tenant: str, action_id: str) -> bool:
    """Until the tx ends, with its places in line. False: there is none."""
    query = SQL["lock_action"]
    arguments = query.arguments(tenant=tenant, action_id=action_id)
    return await connection.fetchval(query.sql, *arguments) is not None


async def lock(connection: Connection, tenant: str, approval_id: str) -> Approval | None:
    """Until the tx ends."""
    query = SQL["lock"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, approval_id=approval_id))
    return None if record is None else read_approval(record)


async def time_of(connection: Connection, now: datetime | None) -> datetime:
    query = SQL["now"]
    time: datetime = await connection.fetchval(query.sql, *query.arguments(now=now))
    return time


async def insert_decision(
    connection: Connection, tenant: str, approval_id: str, decision: Decision, now: datetime
) -> None:
    query = SQL["insert_decision"]
    arguments = query.arguments(
        tenant=tenant,
        approval_id=approval_id,
        decision_id=decision.decision_id,
        voter=decision.voter,
        verdict=decision.verdict.value,
        reason=decision.reason,
        ticket=decision.ticket,
        attachments=list(decision.attachments),
        suggested_input=decision.suggested_input_json,
        answer=decision.answer_json,
        roles=list(decision.roles),
        groups=list(decision.groups),
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def revoke_decision(
    connection: Connection, approval: Approval, decision_id: str, now: datetime
) -> bool:
    """False: it was taken back before."""
    query = SQL["revoke_decision"]
    arguments = query.arguments(
        tenant=approval.tenant, approval_id=approval.approval_id, decision_id=decision_id, now=now
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def note(connection: Connection, action: Action, fact: Fact, now: datetime) -> bool:
    """Tells it of an action that does not move by it. False: the action is not as it was read."""
    query = SQL["note"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        event_type=fact.type,
        event_body=fact.body,
        now=now,
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def queue_action(
    connection: Connection,
    action: Action,
    fact: Fact,
    *,
    expire_time_us: int | None,
    budget_time_us: int | None,
    now: datetime,
) -> bool:
    """Makes a waiting action ready. `expire_time_us`: not begun any more from then on. `budget_time_us`: since when its
    retries count, from now on."""
    query = SQL["queue_action"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        event_type=fact.type,
        event_body=fact.body,
        expire_time_us=expire_time_us,
        budget_time_us=budget_time_us,
        now=now,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


async def grant(connection: Connection, approval: Approval, now: datetime) -> bool:
    query = SQL["grant"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id, now=now)
    return _changed(await connection.execute(query.sql, *arguments))


async def end(connection: Connection, approval: Approval, state: ApprovalState, now: datetime) -> bool:
    """False: it is not open any more."""
    query = SQL["end"]
    arguments = query.arguments(
        tenant=approval.tenant, approval_id=approval.approval_id, state=state.value, now=now
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def touch(connection: Connection, approval: Approval) -> bool:
    """Its votes have changed."""
    query = SQL["touch"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id)
    return _changed(await connection.execute(query.sql, *arguments))


async def consume(connection: Connection, action: Action, now: datetime | None) -> Consumed:
    """Begins the running action under its approval, by its lease."""
    query = SQL["consume"]
    arguments = query.arguments(
        tenant=action.requester.tenant, action_id=action.action_id, lease_id=action.lease_id, now=now
    )
    record = await connection.fetchrow(query.sql, *arguments)
    assert record is not None
    return Consumed(record["is_held"], record["is_consumed"])


async def fence(connection: Connection, action: Action, new_lease_id: str) -> bool:
    """False: the action is not as it was read."""
    query = SQL["fence"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        lease_id=action.lease_id,
        sequence=action.sequence,
        new_lease_id=new_lease_id,
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def claim_due(
    connection: Connection, *, count_max: int, seconds: float, now: datetime | None
) -> list[Due]:
    """For so long it is told to nobody else. In a tx of its own."""
    query = SQL["claim_due"]
    records = await connection.fetch(
        query.sql, *query.arguments(count_max=count_max, seconds=seconds, now=now)
    )
    return [Due(r["tenant"], str(r["approval_id"]), str(r["action_id"])) for r in records]


async def escalate(connection: Connection, approval: Approval) -> bool:
    """More people are told. False: it is not pending any more, or they have been."""
    query = SQL["escalate"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id)
    return _changed(await connection.execute(query.sql, *arguments))


async def look_again(connection: Connection, approval: Approval, now: datetime) -> None:
    """Nothing is to be done now."""
    query = SQL["look_again"]
    arguments = query.arguments(tenant=approval.tenant, approval_id=approval.approval_id, now=now)
    await connection.execute(query.sql, *arguments)


async def put_off(connection: Connection, due: Due, now: datetime | None) -> None:
    """It cannot be looked at now."""
    query = SQL["put_off"]
    arguments = query.arguments(tenant=due.tenant, approval_id=due.approval_id, now=now)
    await connection.execute(query.sql, *arguments)


def _changed(tag: str) -> bool:
    return not tag.endswith(" 0")
