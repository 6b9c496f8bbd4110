"""The replay gate: a message that says which one it is, and when it was made, makes one action and no second one.

Who reads along may send a message again, later, as it was. What it asks for has a key or not; the key may be forgotten
meanwhile. So the id of a message is taken in the tx that stores its action (`store/sql/action.sql: claimed`), and a
message is accepted only near its own time: ids need not be kept longer. A message that is sent again as it was, as a
caller does who has lost the answer, attaches to its action, whatever became of it; anything else under its id is
refused. Ids are the caller's own, so nobody takes another one's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import now_us
from placet_server.model.action import Action, Message
from placet_server.model.identity_errors import MessageReplayed
from placet_server.store import action as actions
from placet_server.store.message import MessageColumns, attach_message, get_claim

if TYPE_CHECKING:
    from placet_server.core.admission.pipeline import Checked

SKEW_SECONDS = 300.0
# A claim outlives the time in which its message is accepted, whatever other servers are set to.
KEPT_SECONDS = 3600.0


async def check_time(journal: Journal, message: Message, skew_seconds: float) -> None:
    """Raises MessageReplayed unless it was made about now, by the store's clock."""
    age_seconds = (await now_us(journal) - message.time_us) / 1_000_000
    if abs(age_seconds) > skew_seconds:
        problem = "too_old" if age_seconds > 0 else "in_the_future"
        raise MessageReplayed(message_id=message.message_id, problem=problem)


def message_columns(checked: Checked, message: Message) -> MessageColumns:
    expire_time_us = message.time_us + int(KEPT_SECONDS * 1_000_000)
    return {
        "message_id": message.message_id,
        "message_digest": _digest(checked),
        "message_expire_time_us": expire_time_us,
    }


async def find_by_message(journal: Journal, checked: Checked) -> Action | None:
    """The action that the message has made. Raises MessageReplayed if it asked for something else then, or the action
    is gone.
    """
    call = checked.call
    message, caller = call.message, call.caller
    if message is None:
        return None
    async with journal.pool.connection() as connection:
        claim = await get_claim(connection, caller.tenant, caller.subject, message.message_id)
        if claim is None:
            return None
        action = await actions.get(connection, caller.tenant, claim.action_id, full=True)
    if action is None or claim.digest != _digest(checked):
        raise MessageReplayed(message_id=message.message_id, problem="claimed")
    return action


async def take_for(journal: Journal, checked: Checked, action: Action) -> None:
    """The message has met an action that its key has. Raises MessageReplayed if it has made another one."""
    call = checked.call
    if call.message is None:
        return
    columns = message_columns(checked, call.message)
    async with journal.pool.connection() as connection:
        await attach_message(connection, call.caller.tenant, call.caller.subject, action.action_id, columns)
    met = await find_by_message(journal, checked)
    if met is None or met.action_id != action.action_id:
        raise MessageReplayed(message_id=call.message.message_id, problem="claimed")


def _digest(checked: Checked) -> str:
    """Of what is asked for. Parts are joined with their lengths, so that no part can pretend to be two."""
    invocation = checked.call.invocation
    parts = [
        checked.capability.name,
        invocation.version,
        invocation.idempotency_key,
        checked.input.digest.hex(),
    ]
    if invocation.session is not None:
        parts.append(invocation.session.session_id)
    return hashlib.sha256(",".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
