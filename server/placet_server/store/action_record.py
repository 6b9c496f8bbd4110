"""From a row to its action."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from asyncpg import Record

from placet_server.model import document
from placet_server.model.action import Action, OnCallerGone, Requester
from placet_server.model.caller import Credential, Delegate, Login
from placet_server.model.contract import Backoff
from placet_server.model.durability import DurabilityClass
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, FailureCategory

Member = TypeVar("Member")

# Four lookups for each row read: a dict takes a fifth of the time of an enum.
_STATES = {state.value: state for state in ActionState}
_ON_CALLER_GONE = {mode.value: mode for mode in OnCallerGone}
_EFFECTS = {None: None} | {effect.value: effect for effect in EffectState}
_DURABILITIES = {each.name: each for each in DurabilityClass}


def read_action(record: Record) -> Action:
    """From a row of action_records or action_summaries, or of queue.sql's claim_batch."""
    labels = record["labels"]
    return Action(
        action_id=str(record["action_id"]),
        requester=_requester(record["tenant"], record["subject"], record["caller"]),
        capability=record["capability"],
        version=record["version"],
        contract_digest=record["contract_digest"],
        effect_class=record["effect_class"],
        effect_marked=record["effect_marked"],
        state=_STATES[record["state"]],
        input_json=record.get("input"),
        input_digest=record["input_digest"],
        output_json=record.get("output"),
        idempotency_key=record["idempotency_key"],
        on_caller_gone=_ON_CALLER_GONE[record["on_caller_gone"]],
        labels={} if labels == "{}" else json.loads(labels),
        attempt=record["attempt"],
        attempts_max=record["attempts_max"],
        effect=_EFFECTS[record["effect"]],
        effect_begun=record["effect_begun"],
        effect_unknown=record["effect_unknown"],
        reason=record["reason"],
        cause=record["cause"],
        message=record["message"] or "",
        failure_code=record["failure_code"] or "",
        failure_category=None
        if record["failure_category"] is None
        else FailureCategory(record["failure_category"]),
        retry_delay_seconds=record["retry_delay_seconds"],
        key_released=record["key_released"],
        provider_operation=record["provider_operation"] or "",
        provider_cursor_json=record["provider_cursor"],
        lease_id=_text(record["lease_id"]),
        instance_id=_text(record["instance_id"]),
        create_time_us=record["create_time_us"],
        start_time_us=record["start_time_us"],
        settle_time_us=record["settle_time_us"],
        ready_time_us=record["ready_time_us"],
        deadline_us=record["deadline_us"],
        cancel_requested_time_us=record["cancel_requested_time_us"],
        effect_key_expire_time_us=record["effect_key_expire_time_us"],
        key_expire_time_us=record["key_expire_time_us"],
        durability=_DURABILITIES[record["durability"]],
        sequence=record["sequence"],
        receipt_digest=record["receipt_digest"],
        predecessor_id=_text(record["predecessor_id"]),
        queue=record["queue"],
        priority=record["priority"],
        attempt_timeout_seconds=record["attempt_timeout_seconds"],
        queue_delay_seconds=record["queue_delay_seconds"],
        backoff=_backoff(record["retry"]),
        budget_time_us=record["budget_time_us"],
        generation=record["generation"],
        parent_id=_text(record["parent_id"]),
        root_id=_text(record["root_id"]),
        step_path=record["step_path"],
        verdict_digest=record["verdict_digest"],
        approval_id=_text(record["approval_id"]),
    )


# Of claims of many actions most have the same requester, and the same pauses.
@lru_cache(maxsize=256)
def _backoff(text: str | None) -> Backoff | None:
    return None if text is None else document.read(Backoff, json.loads(text))


@lru_cache(maxsize=256)
def _requester(tenant: str, subject: str, document_text: str) -> Requester:
    caller = json.loads(document_text)
    return Requester(
        tenant=tenant,
        subject=subject,
        kind=caller["kind"],
        roles=tuple(caller["roles"]),
        groups=tuple(caller.get("groups", ())),
        scopes=tuple(caller["scopes"]),
        delegation=tuple(document.read(Delegate, each) for each in caller.get("delegation", ())),
        login=_read(Login, caller.get("login")),
        credential=_read(Credential, caller.get("credential")),
    )


def requester_document(requester: Requester) -> dict[str, Any]:
    """As it stands in the column `caller`; tenant and subject have columns of their own. What is not known is left out,
    as it is in rows of before it could be known.
    """
    told = {
        "groups": requester.groups,
        "delegation": [document.written(each) for each in requester.delegation],
        "login": None if requester.login is None else document.written(requester.login),
        "credential": None if requester.credential is None else document.written(requester.credential),
    }
    known = {name: value for name, value in told.items() if value}
    return {"kind": requester.kind, "roles": requester.roles, "scopes": requester.scopes, **known}


def _read(kind: type[Member], stored: object) -> Member | None:
    return None if stored is None else document.read(kind, stored)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
