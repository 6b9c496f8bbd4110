"""What people are asked to say yes or no to, and what they have said. Who has to, and when it is enough, is told by the
terms (`approval.py`).

Times are microseconds since the epoch, by the store's clock. Digests are hex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from placet_server.model.approval import Terms, Vote
from placet_server.model.wait import Wait, WaitKind


class ApprovalState(StrEnum):
    """PENDING and, until the action begins, GRANTED are open."""

    PENDING = "PENDING"
    GRANTED = "GRANTED"
    DENIED = "DENIED"
    REVOKED = "REVOKED"
    EXPIRED = "EXPIRED"
    WITHDRAWN = "WITHDRAWN"


class VoteVerdict(StrEnum):
    APPROVE = "APPROVE"
    DENY = "DENY"
    ANSWER = "ANSWER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A vote, with the authority that it was cast under. `suggested_input_json`: what a denier would rather see.
    `answer_json` of an ANSWER.
    """

    decision_id: str
    voter: str
    verdict: VoteVerdict
    reason: str = ""
    ticket: str = ""
    attachments: tuple[str, ...] = ()
    suggested_input_json: str | None = None
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    create_time_us: int = 0
    revoke_time_us: int | None = None
    answer_json: str | None = None

    def says_the_same(self, other: Decision) -> bool:
        """It is the same decision, sent again."""
        return _said(self) == _said(other)


def _said(decision: Decision) -> tuple[object, ...]:
    return (
        decision.voter,
        decision.verdict,
        decision.reason,
        decision.ticket,
        decision.attachments,
        decision.suggested_input_json,
        decision.answer_json,
    )


def votes_of(decisions: Sequence[Decision]) -> list[Vote]:
    """Those that hold."""
    return [
        Vote(d.voter, d.roles, d.groups, d.verdict is not VoteVerdict.DENY)
        for d in decisions
        if d.revoke_time_us is None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A request for a decision, bound to one action and to the exact bytes of it. What else there is to know of it is
    in the action.
    """

    tenant: str
    approval_id: str
    action_id: str
    kind: WaitKind
    state: ApprovalState
    digest: str
    terms: Terms
    capability: str
    title: str
    summary: str
    predecessor_id: str | None = None
    difference: str = ""
    create_time_us: int
    expire_time_us: int
    escalate_time_us: int | None = None
    escalated: bool = False
    consume_time_us: int | None = None
    end_time_us: int | None = None
    revision: int = 1
    claimed_by: str = ""
    claim_expire_time_us: int | None = None

    @property
    def is_open(self) -> bool:
        """Its action has not begun, and may still."""
        is_granted = self.state is ApprovalState.GRANTED and self.consume_time_us is None
        return is_granted or self.state is ApprovalState.PENDING

    def unclaimed(self, now_us: int) -> Approval:
        """Without a claim that is over, or that nobody needs any more."""
        is_live = self.state is ApprovalState.PENDING and (self.claim_expire_time_us or 0) > now_us
        return self if is_live else replace(self, claimed_by="", claim_expire_time_us=None)

    @property
    def wait(self) -> Wait:
        """As its action tells it."""
        return Wait(
            kind=self.kind,
            approval_id=self.approval_id,
            action_id=self.action_id,
            title=self.title,
            expire_time_us=self.expire_time_us,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuery:
    """Members are joined by and, the elements of one member by or. Empty members match all, but for states: PENDING.

    `after`: expiry and id of the last one of the page before.
    """

    states: tuple[ApprovalState, ...] = ()
    action_id: str = ""
    capabilities: tuple[str, ...] = ()
    requester: str = ""
    eligible_only: bool = False
    page_size: int = 50
    after: tuple[int, str] | None = None
