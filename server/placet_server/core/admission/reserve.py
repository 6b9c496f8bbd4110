"""The row that is intent, reservation and lease at once: the first durable write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

import orjson

from placet_server.core.admission.message import message_columns
from placet_server.core.admission.pipeline import Checked
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action, Requester
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import action as actions
from placet_server.store.action_record import requester_document
from placet_server.store.batch_item import Admission, Written
from placet_server.store.instance import is_alive
from placet_server.store.message import MessageClaimed

CALLERS_MAX = 1024


async def reserve(
    journal: Journal,
    checked: Checked,
    action_id: str,
    predecessor: Action | None,
    lease_id: str,
) -> Action | None:
    """The running action under this fresh lease; None when the key is held, the message was taken, or this
    boot may start nothing.

    `predecessor` is a settled action that lets its key go: the key passes to the new one in the same statement.
    Raises StoreUnavailable; whether the row was written is then for the ownership check to find out.
    """
    admission = _admission(journal, checked, action_id, predecessor, lease_id)
    journal.boundary.reached("before_intent_persistence", checked.capability.name)
    message = checked.call.message
    if message is None:
        written = await journal.writer.admit(admission)
    else:
        try:
            row = {**admission, **message_columns(checked, message)}
            written = await journal.writer.admit_message(cast(Admission, row))
        except MessageClaimed:
            return None
    if written is not None:
        return _admitted(journal, checked, admission, written)
    return await _own_row(journal, checked, admission)


async def find_by_key(journal: Journal, digest: bytes) -> Action | None:
    """Whoever holds the key."""
    async with journal.pool.connection() as connection:
        found = await actions.get_by_key_digests(connection, [digest])
    return found[0] if found else None


async def _own_row(journal: Journal, checked: Checked, admission: Admission) -> Action | None:
    """After a lost reply the statement runs twice, and the second run meets the first one's row."""
    async with journal.pool.connection() as connection:
        stored = await actions.get(connection, admission["tenant"], admission["action_id"], full=True)
    return stored if stored is not None and stored.lease_id == admission["lease_id"] else None


async def is_boot_alive(journal: Journal) -> bool:
    """A boot that was declared dead may start nothing, and is told nothing else."""
    async with journal.pool.connection() as connection:
        return await is_alive(connection, journal.boot_id)


def row_of(journal: Journal, checked: Checked, action_id: str, predecessor: Action | None) -> dict[str, Any]:
    """What every new row says of the call that made it, by column."""
    call, key = checked.call, checked.key
    invocation = call.invocation
    return {
        **checked.capability.pinned,
        **_of(call.caller).columns,
        "action_id": action_id,
        "idempotency_key": None if key is None else key.text,
        "key_digest": None if key is None else key.digest.hex(),
        "input": checked.input.text,
        "input_digest": checked.input.digest.hex(),
        "labels": _labels_text(invocation.labels) if invocation.labels else "{}",
        "durability": journal.durability._name_,
        "predecessor_id": None if predecessor is None else predecessor.action_id,
        "verdict_digest": checked.verdict.digest,
    }


def members_of(
    journal: Journal, checked: Checked, row: Mapping[str, Any], written: Written
) -> dict[str, Any]:
    """What every new action says of the call that made it: `row_of` as members of an Action."""
    return {
        "action_id": row["action_id"],
        "requester": _of(checked.call.caller).requester,
        "capability": row["capability"],
        "version": row["version"],
        "contract_digest": row["contract_digest"],
        "effect_class": row["effect_class"],
        "effect_marked": row["effect_marked"],
        "input_json": row["input"],
        "input_digest": row["input_digest"],
        "idempotency_key": row["idempotency_key"] or "",
        "labels": checked.call.invocation.labels,
        "attempts_max": row["attempts_max"],
        "effect": None if row["effect_class"] == "READ" else EffectState.NOT_DONE,
        "create_time_us": written.time_us,
        "durability": journal.durability,
        "sequence": written.sequence,
        "receipt_digest": written.receipt,
        "predecessor_id": row["predecessor_id"],
        "verdict_digest": row["verdict_digest"],
    }


def _admission(
    journal: Journal, checked: Checked, action_id: str, predecessor: Action | None, lease_id: str
) -> Admission:
    admission = row_of(journal, checked, action_id, predecessor)
    admission["on_caller_gone"] = checked.call.invocation.on_caller_gone
    admission["lease_id"] = lease_id
    admission["timeout_seconds"] = checked.clocks.attempt_seconds
    return cast(Admission, admission)


def _admitted(journal: Journal, checked: Checked, admission: Admission, written: Written) -> Action:
    """The row as the statement wrote it."""
    is_read = admission["effect_class"] == "READ"
    ttl_seconds = admission["effect_key_ttl_seconds"]
    time_us = written.time_us
    members = members_of(journal, checked, admission, written)
    members |= {
        "state": ActionState.RUNNING,
        "attempt": 1,
        "on_caller_gone": checked.call.invocation.on_caller_gone,
        "effect_begun": not is_read and not admission["effect_marked"],
        "lease_id": admission["lease_id"],
        "instance_id": journal.boot_id,
        "start_time_us": time_us,
        "deadline_us": time_us + int(admission["timeout_seconds"] * 1_000_000),
        "effect_key_expire_time_us": None if ttl_seconds is None else time_us + int(ttl_seconds * 1_000_000),
    }
    return Action.of_members(members)


class _CallerPart(NamedTuple):
    """What a row says of its caller, by column, and what an action says."""

    columns: dict[str, str]
    requester: Requester


@lru_cache(CALLERS_MAX)
def _of(caller: Caller) -> _CallerPart:
    requester = Requester(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=caller.kind.value,
        roles=caller.roles,
        groups=caller.groups,
        scopes=tuple(sorted(caller.scopes)),
        delegation=caller.delegation,
        login=caller.login,
        credential=caller.credential,
    )
    return _CallerPart(
        columns={
            "tenant": caller.tenant,
            "subject": caller.subject,
            "caller": orjson.dumps(requester_document(requester)).decode(),
        },
        requester=requester,
    )


def _labels_text(labels: dict[str, str]) -> str:
    return orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()
