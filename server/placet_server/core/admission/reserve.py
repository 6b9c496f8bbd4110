"""The row that is intent, reservation and lease at once: the first durable write."""

from __future__ import annotations

from functools import lru_cache

import orjson

from placet_server.core.admission.key import key_digest
from placet_server.core.admission.pipeline import Checked
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.model.action import Action, Requester
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import action as actions
from placet_server.store.batch import Admission, Written

CALLERS_MAX = 1024


async def reserve(
    journal: Journal, checked: Checked, action_id: str, predecessor: Action | None
) -> Action | None:
    """The running action under a fresh lease; None when the key is held or this boot may start nothing.

    Raises StoreUnavailable; whether the row was written is then for the ownership check to find out.
    """
    admission = _admission(journal, checked, action_id, predecessor)
    journal.boundary.reached("before_intent_persistence", checked.capability.name)
    if predecessor is not None and checked.key is not None:
        await _free(journal, predecessor, checked.key.digest)
    written = await journal.writer.admit(admission)
    if written is not None:
        return _admitted(journal, checked, admission, written)
    return await _own_row(journal, checked, admission)


async def find_by_key(journal: Journal, digest: bytes) -> Action | None:
    """Whoever holds the key."""
    async with journal.pool.connection() as connection:
        found = await actions.get_by_key_digests(connection, [digest])
    return found[0] if found else None


def possible_digests(caller: Caller, capability: str, text: str) -> list[bytes]:
    """A key without its contract: either scope may be meant."""
    return [key_digest(caller.tenant, capability, subject, text) for subject in (caller.subject, "")]


async def _free(journal: Journal, predecessor: Action, digest: bytes) -> None:
    async with journal.pool.connection() as connection:
        await actions.free_key(
            connection,
            tenant=predecessor.requester.tenant,
            action_id=predecessor.action_id,
            key_digest=digest,
            now=journal.clock.now(),
        )


async def _own_row(journal: Journal, checked: Checked, admission: Admission) -> Action | None:
    """After a lost reply the statement runs twice, and the second run meets the first one's row."""
    async with journal.pool.connection() as connection:
        stored = await actions.get(connection, admission["tenant"], admission["action_id"], full=True)
    return stored if stored is not None and stored.lease_id == admission["lease_id"] else None


def _admission(journal: Journal, checked: Checked, action_id: str, predecessor: Action | None) -> Admission:
    caller, invocation = checked.call.caller, checked.call.invocation
    contract, key = checked.capability.contract, checked.key
    return Admission(
        tenant=caller.tenant,
        action_id=action_id,
        capability=checked.capability.name,
        version=checked.capability.version,
        contract_digest=checked.capability.contract_digest,
        effect_class=contract.effect.value,
        subject=caller.subject,
        caller=_caller_text(caller),
        idempotency_key=None if key is None else key.text,
        key_digest=None if key is None else key.digest.hex(),
        key_ttl_seconds=contract.idempotency.ttl_seconds,
        input=checked.input.text,
        input_digest=checked.input.digest.hex(),
        labels=orjson.dumps(invocation.labels, option=orjson.OPT_SORT_KEYS).decode()
        if invocation.labels
        else "{}",
        on_caller_gone=invocation.on_caller_gone.value,
        durability=journal.durability.name,
        predecessor_id=None if predecessor is None else predecessor.action_id,
        effect_marked=contract.effect_marked,
        effect_key_ttl_seconds=contract.effect_key_ttl_seconds,
        attempts_max=contract.attempts_max,
        lease_id=new_lease_id(),
        timeout_seconds=checked.clocks.attempt_seconds,
    )


def _admitted(journal: Journal, checked: Checked, admission: Admission, written: Written) -> Action:
    """The row as the statement wrote it."""
    caller, invocation = checked.call.caller, checked.call.invocation
    contract = checked.capability.contract
    is_read = admission["effect_class"] == "READ"
    ttl_seconds = contract.effect_key_ttl_seconds
    return Action(
        action_id=admission["action_id"],
        requester=requester_of(caller),
        capability=admission["capability"],
        version=admission["version"],
        contract_digest=admission["contract_digest"],
        effect_class=admission["effect_class"],
        effect_marked=contract.effect_marked,
        state=ActionState.RUNNING,
        input_json=admission["input"],
        input_digest=admission["input_digest"],
        idempotency_key=admission["idempotency_key"] or "",
        on_caller_gone=invocation.on_caller_gone,
        labels=invocation.labels,
        attempt=1,
        attempts_max=contract.attempts_max,
        effect=None if is_read else EffectState.NOT_DONE,
        effect_begun=not is_read and not contract.effect_marked,
        lease_id=admission["lease_id"],
        instance_id=journal.boot_id,
        create_time_us=written.time_us,
        start_time_us=written.time_us,
        deadline_us=written.time_us + int(admission["timeout_seconds"] * 1_000_000),
        effect_key_expire_time_us=None
        if ttl_seconds is None
        else written.time_us + int(ttl_seconds * 1_000_000),
        durability=journal.durability,
        sequence=written.sequence,
        receipt_digest=written.receipt,
        predecessor_id=admission["predecessor_id"],
    )


@lru_cache(CALLERS_MAX)
def requester_of(caller: Caller) -> Requester:
    return Requester(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=caller.kind.value,
        roles=caller.roles,
        scopes=tuple(sorted(caller.scopes)),
    )


@lru_cache(CALLERS_MAX)
def _caller_text(caller: Caller) -> str:
    document = {"kind": caller.kind.value, "roles": list(caller.roles), "scopes": sorted(caller.scopes)}
    return orjson.dumps(document).decode()
