"""What a client asks for about approvals. `Client` has all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from placet import approval_requests as requests
from placet.approval_requests import ApprovalStateWord, Decision, VoteWord
from placet.errors import PlacetError
from placet.feed import FeedFollower, FeedStream
from placet.requests import Seconds
from placet.retry import Deadline
from placet.sender import Sender
from placet.stream import READ_SECONDS
from placet.v1 import approval_service_pb2, decision_pb2


class ApprovalCalls(Sender):
    """What it sends, beside all that the client does."""

    def approval(self, approval_id: str, *, timeout: float = READ_SECONDS) -> decision_pb2.Approval:
        """One, with its input, its votes, its digest, and whether you may decide it."""
        request = approval_service_pb2.GetApprovalRequest(approval_id=approval_id)
        approval: decision_pb2.Approval = (self._ask("GetApproval", request, timeout)).approval
        return approval

    def approvals(
        self,
        *,
        states: Iterable[ApprovalStateWord] = (),
        action_id: str = "",
        capabilities: Iterable[str] = (),
        requester: str = "",
        eligible_only: bool = False,
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> Iterator[decision_pb2.Approval]:
        """What is pending, or in one of these states, soonest expiry first, without inputs and votes; pages are
        fetched as needed. `eligible_only`: what names you, or a role or group of yours."""
        request = requests.list_request(
            states=states,
            action_id=action_id,
            capabilities=capabilities,
            requester=requester,
            eligible_only=eligible_only,
            page_size=page_size,
        )
        return self._pages("ListApprovals", request, "approvals", timeout)

    def decide(
        self,
        approval_id: str,
        verdict: VoteWord,
        *,
        digest: str,
        reason: str = "",
        ticket: str = "",
        attachments: Sequence[str] = (),
        suggested_input: Any = None,
        decision_id: str | None = None,
        timeout: float = READ_SECONDS,
    ) -> decision_pb2.Approval:
        """Say yes or no to exactly what `digest` stands for, as the approval that you looked at has it.

        It never runs anything, and a resend counts once. Raises NotEligible, DecisionConflict, and RefusedError if it
        is not pending any more or its digest has moved.
        """
        decision = Decision(
            approval_id,
            verdict,
            digest=digest,
            reason=reason,
            ticket=ticket,
            attachments=attachments,
            suggested_input=suggested_input,
            decision_id=decision_id,
        )
        response = self._ask("DecideApproval", decision.request(), timeout)
        approval: decision_pb2.Approval = response.approval
        return approval

    def answer(
        self,
        approval_id: str,
        value: Any,
        *,
        digest: str,
        reason: str = "",
        decision_id: str | None = None,
        timeout: float = READ_SECONDS,
    ) -> decision_pb2.Approval:
        """Answer a question, the approval of kind INPUT that you looked at. The first answer counts.

        `value` is JSON-able, or JSON text as bytes. Raises InvalidRequestError if it does not fit, NotEligible,
        DecisionConflict, and RefusedError if somebody else was faster.
        """
        request = requests.answer_request(approval_id, value, digest, reason, decision_id)
        approval: decision_pb2.Approval = (self._ask("ProvideInput", request, timeout)).approval
        return approval

    def decide_many(
        self, decisions: Iterable[Decision], *, timeout: float = READ_SECONDS
    ) -> list[decision_pb2.Approval | PlacetError]:
        """Up to 50 decisions, each by itself: for each the approval as it stands then, or why the decision does not
        count."""
        response = self._ask("BatchDecideApprovals", requests.batch_request(decisions), timeout)
        return requests.batch_answers(response)

    def revoke(
        self, approval_id: str, decision_id: str, *, reason: str = "", timeout: float = READ_SECONDS
    ) -> decision_pb2.Approval:
        """Take your own yes back, until the action begins: of what was granted it ends the action, DENIED. It may not
        be cast again. Raises RefusedError if it has begun, or is over otherwise."""
        request = approval_service_pb2.RevokeDecisionRequest(
            approval_id=approval_id, decision_id=decision_id, reason=reason
        )
        approval: decision_pb2.Approval = (self._ask("RevokeDecision", request, timeout)).approval
        return approval

    def claim_approval(
        self, approval_id: str, *, ttl: Seconds | None = None, timeout: float = READ_SECONDS
    ) -> decision_pb2.Approval:
        """Say that you are looking at it, for 10 min unless said, so that others look at other ones. It keeps nobody
        from deciding. Raises RefusedError if somebody else does."""
        response = self._ask("ClaimApproval", requests.claim_request(approval_id, ttl), timeout)
        approval: decision_pb2.Approval = response.approval
        return approval

    def release_approval(self, approval_id: str, *, timeout: float = READ_SECONDS) -> decision_pb2.Approval:
        """Take that back."""
        request = approval_service_pb2.ReleaseApprovalRequest(approval_id=approval_id)
        approval: decision_pb2.Approval = (self._ask("ReleaseApproval", request, timeout)).approval
        return approval

    def watch_approvals(
        self,
        *,
        capabilities: Iterable[str] = (),
        eligible_only: bool = False,
        after: str = "",
        from_now: bool = False,
        timeout: float | None = None,
    ) -> FeedStream[approval_service_pb2.WatchApprovalsResponse]:
        """What happens to the tenant's approvals: each event, with the approval as it stands when it is told. First
        the past, unless `from_now` or `after` a cursor, then live, until you leave or `timeout` seconds are over.

        A stream that breaks goes on where it was. Raises CursorExpiredError.
        """
        request = approval_service_pb2.WatchApprovalsRequest(
            capabilities=list(capabilities),
            eligible_only=eligible_only,
            after_cursor=after,
            from_now=from_now,
        )
        follower = FeedFollower(Deadline(timeout), self._policy, request)
        return FeedStream(follower, self._responses(follower))
