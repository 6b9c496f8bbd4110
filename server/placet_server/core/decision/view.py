"""Looking at what waits for people: what would run, who asked, who said what, and whether the onlooker may decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import check_text, now_us
from placet_server.model.action import Action
from placet_server.model.approval import Problem, Vote, Voter, eligible, satisfied
from placet_server.model.approval_text import missing
from placet_server.model.capability import Capability
from placet_server.model.decision import Approval, ApprovalQuery, ApprovalState, Decision, votes_of
from placet_server.model.errors import NotFound
from placet_server.model.query import PAGE_SIZE_MAX
from placet_server.model.redaction import hidden_text
from placet_server.model.wait import WaitKind
from placet_server.store import action as actions
from placet_server.store import approval as approvals

CapabilityOf = Callable[[Action], Awaitable[Capability | None]]
"""What an action is pinned to; None: the catalogue does not have it any more."""

EVERYTHING = ("",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Onlooker:
    """Who looks, within a tenant, with the authority that the server established. `sees_sensitive`: all inputs in
    clear. `may_decide`: by its scopes.
    """

    tenant: str
    voter: Voter
    sees_sensitive: bool
    may_decide: bool

    def problem(
        self, approval: Approval, action: Action, capability: Capability | None, now: int
    ) -> Problem | None:
        """Why this vote would not count; None if it would."""
        requester = action.requester
        problem = eligible(
            approval.terms,
            self.voter,
            requesters={requester.subject, *(each.subject for each in requester.delegation)},
            now_us=now,
            sees_sensitive=self.sees_sensitive,
            sensitive_paths=_sensitive(capability),
        )
        if problem is None and approval.kind is WaitKind.INPUT and not self._suffices(approval):
            return Problem.NOT_SELECTED
        return problem

    def _suffices(self, approval: Approval) -> bool:
        """One answers, so that one has to be all whom the terms ask for."""
        mine = Vote(self.voter.subject, self.voter.roles, self.voter.groups)
        return satisfied(approval.terms.rule, [mine])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """`problem`: why the onlooker may not decide it now; empty if it is up to him. `input_json` None: not looked at."""

    approval: Approval
    action: Action
    capability: Capability | None
    decisions: tuple[Decision, ...]
    missing: str
    problem: str
    input_json: str | None = None
    hidden_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPage:
    """`next_after` is None on the last page. A page may be short of page_size and still have a next one."""

    views: tuple[ApprovalView, ...]
    next_after: tuple[int, str] | None


async def find_approval(journal: Journal, tenant: str, approval_id: str) -> tuple[Approval, Action]:
    """With its action and that one's payload. Raises NotFound."""
    async with journal.pool.connection() as connection:
        approval = await approvals.get(connection, tenant, approval_id)
        if approval is None:
            raise NotFound(kind="approval", name=approval_id)
        action = await actions.get(connection, tenant, approval.action_id, full=True)
    if action is None:
        raise NotFound(kind="approval", name=approval_id)
    return approval, action


async def view_of(
    journal: Journal, who: Onlooker, approval_id: str, capability_of: CapabilityOf
) -> ApprovalView:
    """Whole. Raises NotFound."""
    approval, action = await find_approval(journal, who.tenant, approval_id)
    async with journal.pool.connection() as connection:
        found = await approvals.map_decisions(connection, who.tenant, [approval_id])
    capability = await capability_of(action)
    view = _view(who, approval, action, capability, found.get(approval_id, ()), await now_us(journal))
    value: Any = orjson.loads(action.input_json or "null")
    paths = () if who.sees_sensitive else _sensitive(capability)
    text, hidden = hidden_text(value, paths) if paths else (action.input_json, ())
    decisions = tuple(_shown(decision, paths) for decision in view.decisions)
    return replace(view, input_json=text, hidden_paths=hidden, decisions=decisions)


def _shown(decision: Decision, paths: Sequence[str]) -> Decision:
    """An input that a voter suggests is hidden where the action's own is."""
    suggested = decision.suggested_input_json
    if suggested is None or not paths:
        return decision
    return replace(decision, suggested_input_json=hidden_text(orjson.loads(suggested), paths)[0])


async def list_approvals(
    journal: Journal, who: Onlooker, query: ApprovalQuery, capability_of: CapabilityOf
) -> ApprovalPage:
    """Soonest expiry first, without inputs. Raises MalformedRequest for text that no row can have."""
    check_text(query.requester, *query.capabilities)
    bounded = replace(query, page_size=min(query.page_size, PAGE_SIZE_MAX))
    async with journal.pool.connection() as connection:
        scan = await approvals.list_page(
            connection,
            who.tenant,
            bounded,
            voter=who.voter.subject,
            roles=list(who.voter.roles),
            groups=list(who.voter.groups),
        )
    views = await views_of(journal, who, scan.approvals, capability_of)
    return ApprovalPage(views=views, next_after=scan.last_scanned)


async def views_of(
    journal: Journal, who: Onlooker, found: Sequence[Approval], capability_of: CapabilityOf
) -> tuple[ApprovalView, ...]:
    """Of each whose action is there, without inputs."""
    async with journal.pool.connection() as connection:
        ids = [approval.approval_id for approval in found]
        decided = await approvals.map_decisions(connection, who.tenant, ids)
        waiting = await actions.map_by_ids(connection, who.tenant, [a.action_id for a in found])
    now = await now_us(journal)
    views = []
    for approval in found:
        action = waiting.get(approval.action_id)
        if action is not None:
            capability = await capability_of(action)
            decisions = decided.get(approval.approval_id, ())
            views.append(_view(who, approval, action, capability, decisions, now))
    return tuple(views)


def _view(
    who: Onlooker,
    approval: Approval,
    action: Action,
    capability: Capability | None,
    decisions: Sequence[Decision],
    now: int,
) -> ApprovalView:
    return ApprovalView(
        approval=approval.unclaimed(now),
        action=action,
        capability=capability,
        decisions=tuple(decisions),
        missing=missing(approval.terms.rule, votes_of(decisions)),
        problem=_problem(who, approval, action, capability, decisions, now),
    )


def _problem(
    who: Onlooker,
    approval: Approval,
    action: Action,
    capability: Capability | None,
    decisions: Sequence[Decision],
    now: int,
) -> str:
    if approval.state is not ApprovalState.PENDING or now >= approval.expire_time_us:
        return "not_pending"
    if not who.may_decide:
        return "scope_missing"
    if any(decision.voter == who.voter.subject for decision in decisions):
        return "voted"
    problem = who.problem(approval, action, capability, now)
    return "" if problem is None else problem.value


def _sensitive(capability: Capability | None) -> tuple[str, ...]:
    """Of what nobody knows any more, all is."""
    return EVERYTHING if capability is None else capability.contract.data.sensitive_paths
