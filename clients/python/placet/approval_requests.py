"""Requests about approvals, from plain arguments. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from placet.errors import PlacetError
from placet.requests import Seconds, duration, input_text
from placet.status import error_of_message
from placet.v1 import approval_service_pb2, decision_pb2

VoteWord = Literal["approve", "deny"]
ApprovalStateWord = Literal["pending", "granted", "denied", "revoked", "expired", "withdrawn"]

_VERDICT = {"approve": decision_pb2.VOTE_VERDICT_APPROVE, "deny": decision_pb2.VOTE_VERDICT_DENY}
_STATE = {
    "pending": decision_pb2.APPROVAL_STATE_PENDING,
    "granted": decision_pb2.APPROVAL_STATE_GRANTED,
    "denied": decision_pb2.APPROVAL_STATE_DENIED,
    "revoked": decision_pb2.APPROVAL_STATE_REVOKED,
    "expired": decision_pb2.APPROVAL_STATE_EXPIRED,
    "withdrawn": decision_pb2.APPROVAL_STATE_WITHDRAWN,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A yes or no to exactly what `digest` stands for, as the approval that was looked at has it.

    `suggested_input`: with "deny", what would rather be seen. `decision_id` ties resends together; without one a fresh
    one is made.
    """

    approval_id: str
    verdict: VoteWord
    _: KW_ONLY
    digest: str
    reason: str = ""
    ticket: str = ""
    attachments: Sequence[str] = ()
    suggested_input: Any = None
    decision_id: str | None = None

    def request(self) -> approval_service_pb2.DecideApprovalRequest:
        """Raises TypeError or ValueError for what cannot be sent."""
        if self.verdict not in _VERDICT:
            raise ValueError(f"verdict is {self.verdict!r}; say 'approve' or 'deny'")
        request = approval_service_pb2.DecideApprovalRequest(
            approval_id=self.approval_id,
            digest=self.digest,
            verdict=_VERDICT[self.verdict],
            decision_id=self.decision_id or str(uuid.uuid4()),
            reason=self.reason,
            suggested_input_json="" if self.suggested_input is None else input_text(self.suggested_input),
        )
        if self.ticket or self.attachments:
            request.evidence.ticket = self.ticket
            request.evidence.attachments.extend(self.attachments)
        return request


def answer_request(
    approval_id: str, value: Any, digest: str, reason: str, decision_id: str | None
) -> approval_service_pb2.ProvideInputRequest:
    return approval_service_pb2.ProvideInputRequest(
        approval_id=approval_id,
        digest=digest,
        answer_json=input_text(value),
        decision_id=decision_id or str(uuid.uuid4()),
        reason=reason,
    )


def batch_request(decisions: Iterable[Decision]) -> approval_service_pb2.BatchDecideApprovalsRequest:
    return approval_service_pb2.BatchDecideApprovalsRequest(items=[each.request() for each in decisions])


def batch_answers(
    response: approval_service_pb2.BatchDecideApprovalsResponse,
) -> list[decision_pb2.Approval | PlacetError]:
    return [
        result.approval if result.HasField("approval") else error_of_message(result.error)
        for result in response.results
    ]


def list_request(
    *,
    states: Iterable[ApprovalStateWord],
    action_id: str,
    capabilities: Iterable[str],
    requester: str,
    eligible_only: bool,
    page_size: int,
) -> approval_service_pb2.ListApprovalsRequest:
    words = list(states)
    if unknown := [word for word in words if word not in _STATE]:
        raise ValueError(f"states has {unknown[0]!r}; say one of {', '.join(_STATE)}")
    return approval_service_pb2.ListApprovalsRequest(
        filter=approval_service_pb2.ApprovalFilter(
            states=[_STATE[word] for word in words],
            action_id=action_id,
            capabilities=list(capabilities),
            requester=requester,
            eligible_only=eligible_only,
        ),
        page_size=page_size,
    )


def claim_request(approval_id: str, ttl: Seconds | None) -> approval_service_pb2.ClaimApprovalRequest:
    request = approval_service_pb2.ClaimApprovalRequest(approval_id=approval_id)
    if ttl is not None:
        request.ttl.CopyFrom(duration(ttl))
    return request
