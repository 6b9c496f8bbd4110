"""Sessions begun and closed, and runs that take their turns in them.

A run of a session is stored by the statements that store any other, in a tx that has locked the session: so of two that
come at once one is first, and the other finds it there. Of what a key has stored nothing is stored again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from placet_server.core.admission.pipeline import Call, Checked
from placet_server.core.admission.session_token import TOKEN_SECONDS, first_again, first_token
from placet_server.core.execution.cancel import cancel_action, cancel_body
from placet_server.core.execution.engine import Engine
from placet_server.core.kernel import Kernel
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_action_id
from placet_server.core.publication.session import CLOSED, get_session, map_places, pass_turn
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound
from placet_server.model.gate_errors import IdempotencyConflict
from placet_server.model.identity_errors import OPEN_SESSIONS, QuotaExceeded
from placet_server.model.lifecycle import SESSION, ActionState
from placet_server.model.run_errors import SessionBusy, SessionClosed
from placet_server.model.session import (
    OPEN_MAX_DEFAULT,
    WAITING_MAX,
    NewSession,
    OnBusy,
    Session,
    SessionUse,
)
from placet_server.store import action as actions
from placet_server.store import session as sessions
from placet_server.store import session_run as session_runs
from placet_server.store.batch_item import Written
from placet_server.store.connection import Connection
from placet_server.store.message import is_claimed
from placet_server.store.session import Locked
from placet_server.store.session_run import Passed

CREATE = "CreateSession"
NEW_RUN = "another run in its session was asked for, instead of this one"
_HELD = orjson.dumps({"attempt": 0, "cause": SESSION, "lane_number": 0, "steps": 0}).decode()


class StoredInSession(NamedTuple):
    """A run. `number`: which of its session it is. `held`: it waits for its turn, and how the row stands then."""

    written: Written
    number: int
    held: session_runs.Held | None


async def create_session(
    journal: Journal, caller: Caller, wanted: NewSession, *, open_max: int = OPEN_MAX_DEFAULT
) -> Session:
    """The same again for the same key, with its resume token. Raises IdempotencyConflict for another one under it, and
    QuotaExceeded if the caller has so many open.
    """
    key = wanted.idempotency_key
    digest = _key_digest(caller, key) if key else None
    session_id = new_action_id()
    token = first_token(session_id, key)
    text = token.text
    async with journal.pool.connection() as connection:
        done = await sessions.insert(
            connection,
            caller.tenant,
            caller.subject,
            session_id,
            wanted,
            key_digest=digest,
            token=(token.digest, token.nonce),
            token_seconds=TOKEN_SECONDS,
            open_max=open_max,
            now=journal.clock.now(),
        )
        if not done:
            holder = None
            if digest is not None:
                holder = await sessions.find_by_key(connection, caller.tenant, digest)
            if holder is None:
                raise QuotaExceeded(quota=OPEN_SESSIONS, quota_max=open_max)
            session_id, *made, kept = holder
            if made != [wanted.agent, wanted.title, wanted.labels, round(wanted.idle_seconds * 1_000_000)]:
                raise IdempotencyConflict(capability=CREATE, action_id=session_id)
            text = first_again(session_id, key, kept)
    return replace(await get_session(journal, caller, session_id), resume_token=text)


async def close_session(kernel: Kernel, caller: Caller, session_id: str, *, cancel: bool) -> Session:
    """`cancel`: with what is not over in it; else raises SessionBusy for it. Raises NotFound."""
    journal = kernel.journal
    async with journal.pool.tx() as connection:
        locked = await _lock(connection, journal, caller, session_id)
        busy_with = await _busy_with(connection, caller.tenant, locked)
        if busy_with is not None and not cancel:
            raise SessionBusy(session_id=session_id, action_id=busy_with, problem="not_cancelled")
        await sessions.close(connection, caller.tenant, session_id, journal.clock.now())
        if cancel:
            await _mark_before(connection, journal, caller, session_id, locked.run_count + 1, CLOSED)
    if cancel:
        await _cancel_before(kernel.engine, caller, session_id, locked.run_count + 1, CLOSED)
    return await get_session(journal, caller, session_id)


async def check_same_session(kernel: Kernel, call: Call, holder: Action) -> None:
    """A key names one run of one session. A run whose caller wants those before it ended is not left to wait because it
    was heard of before. Raises IdempotencyConflict.
    """
    wanted = call.invocation.session
    place = (await map_places(kernel.journal, call.caller.tenant, [holder])).get(holder.action_id)
    if (None if wanted is None else wanted.session_id) != (None if place is None else place.session_id):
        raise IdempotencyConflict(capability=holder.capability, action_id=holder.action_id)
    if wanted is not None and place is not None and _is_held(holder):
        await make_way(kernel, call.caller, wanted, place.number)


async def write_in_session(
    journal: Journal, checked: Checked, row: Mapping[str, Any]
) -> StoredInSession | None:
    """None: the key is held, the message was taken, or this boot may start nothing.

    Raises NotFound, SessionBusy, SessionClosed.
    """
    caller, use = checked.call.caller, checked.call.invocation.session
    assert use is not None
    try:
        async with journal.pool.tx() as connection:
            locked = await _lock(connection, journal, caller, use.session_id)
            busy_with = await _busy_with(connection, caller.tenant, locked)
            refusal = await _refusal(connection, caller.tenant, locked, use, row, busy_with)
            if refusal is not None:
                if await _is_held_by_another(connection, checked, row):
                    return None
                raise refusal
            stored = await _write(connection, journal, use, row, waits=busy_with is not None)
            if stored is not None and stored.held is not None and use.on_busy is OnBusy.CANCEL_PREVIOUS:
                await _mark_before(connection, journal, caller, use.session_id, stored.number, NEW_RUN)
            return stored
    except Exception as error:
        if is_claimed(error):
            return None
        raise


async def make_way(kernel: Kernel, caller: Caller, use: SessionUse, number: int) -> None:
    """For a run that waits for its turn, if its caller wants the others ended instead of waited for."""
    if use.on_busy is OnBusy.CANCEL_PREVIOUS:
        await _cancel_before(kernel.engine, caller, use.session_id, number, NEW_RUN)
    # What was before it may have ended before it waited.
    await pass_turn(kernel.journal, Passed(caller.tenant, use.session_id))


def as_held(action: Action, held: session_runs.Held) -> Action:
    """As it waits for its turn."""
    return action.changed(
        state=ActionState.WAITING, cause=SESSION, sequence=held.sequence, receipt_digest=held.receipt
    )


def _is_held(action: Action) -> bool:
    return action.state is ActionState.WAITING and action.cause == SESSION


async def _lock(connection: Connection, journal: Journal, caller: Caller, session_id: str) -> Locked:
    locked = await sessions.lock(
        connection, caller.tenant, session_id, subject=caller.subject, now=journal.clock.now()
    )
    if locked is None:
        raise NotFound(kind="session", name=session_id)
    return locked


async def _busy_with(connection: Connection, tenant: str, locked: Locked) -> str | None:
    """The run that is not over. Whoever waits has the turn before whoever comes."""
    active = locked.active_action_id
    if active is None or not await session_runs.is_over(connection, tenant, active):
        return active
    waiting = await session_runs.next_waiting(connection, tenant, locked.session_id)
    return None if waiting is None else waiting.action_id


async def _refusal(
    connection: Connection,
    tenant: str,
    locked: Locked,
    use: SessionUse,
    row: Mapping[str, Any],
    busy_with: str | None,
) -> SessionBusy | SessionClosed | None:
    if not locked.is_open or (locked.is_idle and busy_with is None):
        return SessionClosed(session_id=use.session_id)
    if busy_with is None:
        return None
    problem = ""
    if use.on_busy is OnBusy.REFUSE:
        problem = "not_over"
    elif "approval_id" in row:
        # One that waits for people may have their yes at any time, and cannot wait for both.
        problem = "needs_approval"
    elif await session_runs.count_waiting(connection, tenant, locked.session_id) >= WAITING_MAX:
        problem = "line_full"
    if not problem:
        return None
    return SessionBusy(session_id=use.session_id, action_id=busy_with, problem=problem)


async def _is_held_by_another(connection: Connection, checked: Checked, row: Mapping[str, Any]) -> bool:
    """Than the action whose key this one takes over: then its caller is told of that one."""
    if checked.key is None:
        return False
    found = await actions.get_by_key_digests(connection, [checked.key.digest])
    return any(holder.action_id != row["predecessor_id"] for holder in found)


async def _write(
    connection: Connection, journal: Journal, use: SessionUse, row: Mapping[str, Any], *, waits: bool
) -> StoredInSession | None:
    now, tenant, action_id = journal.clock.now(), row["tenant"], row["action_id"]
    written = await session_runs.place(connection, row, boot_id=journal.boot_id, now=now)
    if written is None:
        return None
    number = await session_runs.add_run(connection, tenant, use.session_id, action_id, waits=waits, now=now)
    held = None
    if waits:
        held = await session_runs.hold(connection, tenant, action_id, event_body=_HELD, now=now)
    return StoredInSession(written, number, held)


async def _mark_before(
    connection: Connection, journal: Journal, caller: Caller, session_id: str, number: int, reason: str
) -> None:
    """That they are to stop is stored with what they are to stop for: so they do, whoever dies before he tells them."""
    before = await session_runs.list_open(connection, caller.tenant, session_id, before=number)
    await actions.request_cancel_all(
        connection,
        tenant=caller.tenant,
        action_ids=before,
        event_body=cancel_body(caller.subject, reason),
        now=journal.clock.now(),
    )


async def _cancel_before(engine: Engine, caller: Caller, session_id: str, number: int, reason: str) -> None:
    """Newest first, so that none of them gets the turn of another."""
    async with engine.journal.pool.connection() as connection:
        found = await session_runs.list_open(connection, caller.tenant, session_id, before=number)
    for action_id in reversed(found):
        await cancel_action(engine, caller, action_id, reason)


def _key_digest(caller: Caller, key: str) -> bytes:
    tenant, subject = caller.tenant, caller.subject
    parts = f"session,{len(tenant)}:{tenant},{len(subject)}:{subject},{key}"
    return hashlib.sha256(parts.encode()).digest()
