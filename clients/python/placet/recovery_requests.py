"""Requests about what stopped in between, from plain arguments. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Literal

from placet.requests import input_text
from placet.v1 import recovery_service_pb2 as pb

VerdictWord = Literal["done", "not_done"]
FamilyWord = Literal["leases", "queues", "ambiguous", "dead_letters", "approvals", "callbacks"]

_VERDICT = {"done": pb.VERDICT_DONE, "not_done": pb.VERDICT_NOT_DONE}
_FAMILY = {
    "leases": pb.REPORT_FAMILY_LEASES,
    "queues": pb.REPORT_FAMILY_QUEUES,
    "ambiguous": pb.REPORT_FAMILY_AMBIGUOUS,
    "dead_letters": pb.REPORT_FAMILY_DEAD_LETTERS,
    "approvals": pb.REPORT_FAMILY_APPROVALS,
    "callbacks": pb.REPORT_FAMILY_CALLBACKS,
}


def dead_letters_request(
    *, capabilities: Iterable[str], queue: str, reason: str, tenant: str, page_size: int
) -> pb.ListDeadLettersRequest:
    return pb.ListDeadLettersRequest(
        tenant=tenant, page_size=page_size, filter=_dead_letters(capabilities, queue, reason)
    )


def redrive_request(
    *,
    action_ids: Iterable[str],
    capabilities: Iterable[str],
    queue: str,
    reason_of_death: str,
    count_max: int,
    attempts: int,
    reason: str,
    validate_only: bool,
    key: str | None,
) -> pb.RedriveRequest:
    """Without `key` a fresh one is made. Raises ValueError unless ids or a filter, and not both, say which actions."""
    ids, found = list(action_ids), _dead_letters(capabilities, queue, reason_of_death)
    if bool(ids) == bool(found.ByteSize()):
        raise ValueError("say which: action_ids, or some of capabilities, queue and reason_of_death")
    selection = (
        pb.EndedSelection(action_ids=ids, count_max=count_max or len(ids))
        if ids
        else pb.EndedSelection(filter=found, count_max=count_max)
    )
    return pb.RedriveRequest(
        selection=selection,
        attempts=attempts,
        reason=reason,
        validate_only=validate_only,
        idempotency_key=str(uuid.uuid4()) if key is None else key,
    )


def ambiguous_request(*, capabilities: Iterable[str], tenant: str, page_size: int) -> pb.ListAmbiguousRequest:
    return pb.ListAmbiguousRequest(tenant=tenant, page_size=page_size, capabilities=list(capabilities))


def resolve_request(
    action_id: str,
    verdict: VerdictWord,
    *,
    reason: str,
    evidence: str,
    output: Any,
    expected_attempt: int,
    validate_only: bool,
) -> pb.ResolveAmbiguousRequest:
    """Raises ValueError for an output of what was not done, and for a verdict that does not exist."""
    if verdict not in _VERDICT:
        raise ValueError(f"verdict is {verdict!r}; say 'done' or 'not_done'")
    if verdict == "not_done" and output is not None:
        raise ValueError("what was not done has no output")
    return pb.ResolveAmbiguousRequest(
        action_id=action_id,
        verdict=_VERDICT[verdict],
        output_json=input_text(output) if verdict == "done" else "",
        reason=reason,
        evidence=evidence,
        expected_attempt=expected_attempt,
        validate_only=validate_only,
    )


def reconcile_request(
    *, action_ids: Iterable[str], capabilities: Iterable[str], count_max: int, validate_only: bool
) -> pb.ReconcileRequest:
    """Raises ValueError for ids together with what selects others."""
    ids, names = list(action_ids), list(capabilities)
    if ids and (names or count_max):
        raise ValueError("say action_ids alone, or capabilities and count_max")
    return pb.ReconcileRequest(
        action_ids=ids, capabilities=names, count_max=count_max, validate_only=validate_only
    )


def recover_request(
    *, families: Iterable[FamilyWord], tenant: str, validate_only: bool, key: str | None
) -> pb.RecoverRequest:
    """Without `key` a fresh one is made. Raises ValueError for a family that does not exist."""
    words = list(families)
    if unknown := [word for word in words if word not in _FAMILY]:
        raise ValueError(f"family is {unknown[0]!r}; say {', '.join(map(repr, _FAMILY))}")
    return pb.RecoverRequest(
        tenant=tenant,
        families=[_FAMILY[word] for word in words],
        validate_only=validate_only,
        idempotency_key=str(uuid.uuid4()) if key is None else key,
    )


def _dead_letters(capabilities: Iterable[str], queue: str, reason: str) -> pb.DeadLetterFilter:
    return pb.DeadLetterFilter(capabilities=list(capabilities), queue=queue, reason=reason)
