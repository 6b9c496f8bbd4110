"""A person says yes or no to exactly what a digest binds.

One tx, which locks the action, then its approval, and reads both and all votes again. The vote that completes the rule
makes the action ready in that tx, and any server runs it; the voter's call never does. One authorized no ends it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from placet_server.core.decision.consume import denied
from placet_server.core.decision.view import ApprovalView, CapabilityOf, Onlooker, find_approval, view_of
from placet_server.core.publication.approval_callback import decided
from placet_server.core.publication.gated import (
    Gated,
    announce_ready,
    end_gated,
    fact_of,
    lock_gated,
    make_ready,
    tell,
    tell_others,
)
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.wake import wake_parent_of
from placet_server.model.action import Action
from placet_server.model.approval import Evidence, satisfied
from placet_server.model.capability import Capability
from placet_server.model.decision import Approval, ApprovalState, Decision, VoteVerdict, votes_of
from placet_server.model.decision_errors import DecisionConflict, NotEligible
from placet_server.model.errors import FieldViolation, MalformedRequest, NotFound, StaleDigest, StateConflict
from placet_server.model.event import EventType
from placet_server.model.gate_errors import InputSchemaViolation
from placet_server.model.json_text import canonicalize
from placet_server.model.lifecycle import ActionState
from placet_server.model.question import ANSWER_BYTES_MAX, question_of
from placet_server.model.wait import WaitKind
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves
from placet_server.store.approval_move import Fact
from placet_server.store.connection import Connection

SUGGESTION_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideCommand:
    """`digest`: what the voter has looked at. `decision_id` ties resends of one decision together. `answer_json` goes
    with ANSWER.
    """

    approval_id: str
    digest: str
    verdict: VoteVerdict
    decision_id: str
    reason: str = ""
    ticket: str = ""
    attachments: tuple[str, ...] = ()
    suggested_input_json: str = ""
    answer_json: str = ""


async def decide(
    journal: Journal, who: Onlooker, command: DecideCommand, capability_of: CapabilityOf
) -> ApprovalView:
    """The approval as it stands then. A decision that is known already is told again, and counts once.

    Raises NotFound, MalformedRequest, StaleDigest, StateConflict, NotEligible, DecisionConflict.
    """
    approval, action = await find_approval(journal, who.tenant, command.approval_id)
    capability = await capability_of(action)
    _check_kind(approval, command)
    mine = replace(_decision(who, command, capability), answer_json=_answer(command, action))
    ready: tuple[Action, int] | None = None
    async with journal.pool.tx() as connection:
        gated = await lock_gated(connection, journal, approval)
        if gated is None:
            raise NotFound(kind="approval", name=command.approval_id)
        known = (await approvals.map_decisions(connection, who.tenant, [approval.approval_id])).get(
            approval.approval_id, []
        )
        _check_digest(gated.approval, command)
        if not _is_known(gated.approval, known, mine):
            _check(gated, who, command, capability)
            ready = await _count(connection, gated, known, mine)
    journal.boundary.reached("decision_persisted", action.capability)
    journal.hub.publish(action.action_id)
    journal.callbacks.ring()
    if ready is not None:
        announce_ready(journal, *ready)
    await wake_parent_of(journal, action)
    return await view_of(journal, who, command.approval_id, capability_of)


def _decision(who: Onlooker, command: DecideCommand, capability: Capability | None) -> Decision:
    """Raises MalformedRequest, and what is wrong with a suggested input."""
    return Decision(
        decision_id=command.decision_id,
        voter=who.voter.subject,
        verdict=command.verdict,
        reason=storable("reason", command.reason),
        ticket=storable("evidence.ticket", command.ticket),
        attachments=tuple(storable("evidence.attachments", each) for each in command.attachments),
        suggested_input_json=_suggestion(command, capability),
        roles=tuple(sorted(who.voter.roles)),
        groups=tuple(sorted(who.voter.groups)),
    )


def _check_kind(approval: Approval, command: DecideCommand) -> None:
    """Raises MalformedRequest."""
    is_question = approval.kind is WaitKind.INPUT
    if is_question and command.verdict is VoteVerdict.APPROVE:
        raise _malformed("verdict", "question", "a question is answered: ProvideInput")
    if not is_question and command.verdict is VoteVerdict.ANSWER:
        raise _malformed("approval_id", "no_question", "it is no question: DecideApproval")


def _answer(command: DecideCommand, action: Action) -> str | None:
    """Raises MalformedJson, JsonNotInteroperable, PayloadTooLarge, InputSchemaViolation."""
    if command.verdict is not VoteVerdict.ANSWER:
        return None
    canonical = canonicalize(command.answer_json, bytes_max=ANSWER_BYTES_MAX, field="answer_json")
    question = question_of(orjson.loads(action.input_json or "null"))
    if violations := tuple(question.violations(canonical.value)):
        raise InputSchemaViolation(
            capability=action.capability, version=action.version, violations=violations
        )
    return canonical.text


def _suggestion(command: DecideCommand, capability: Capability | None) -> str | None:
    """Raises MalformedRequest, MalformedJson, JsonNotInteroperable, PayloadTooLarge, InputSchemaViolation."""
    field, text = "suggested_input_json", command.suggested_input_json
    if not text:
        return None
    if command.verdict is not VoteVerdict.DENY:
        raise _malformed(field, "deny_only", "goes with DENY alone")
    canonical = canonicalize(text, bytes_max=SUGGESTION_BYTES_MAX, field=field)
    violations = [] if capability is None else capability.compiled_input.violations(canonical.value)
    if capability is not None and violations:
        raise InputSchemaViolation(
            capability=capability.name,
            version=capability.version,
            violations=tuple(
                FieldViolation(field=v.path, rule=v.rule, description=v.message) for v in violations
            ),
        )
    return canonical.text


def storable(field: str, text: str) -> str:
    """Raises MalformedRequest."""
    if "\x00" in text:
        raise _malformed(field, "text", "has a NUL character")
    return text


def _malformed(field: str, rule: str, description: str) -> MalformedRequest:
    return MalformedRequest(violations=(FieldViolation(field=field, rule=rule, description=description),))


def _check_digest(approval: Approval, command: DecideCommand) -> None:
    if approval.digest != command.digest:
        raise StaleDigest(expected=command.digest, actual=approval.digest)


def _is_known(approval: Approval, known: Sequence[Decision], mine: Decision) -> bool:
    """It was counted before, or says what this person has said already. Raises DecisionConflict."""
    for decision in known:
        if decision.decision_id == mine.decision_id and not decision.says_the_same(mine):
            raise DecisionConflict(approval_id=approval.approval_id, rule="other_content")
        if decision.voter == mine.voter:
            if decision.revoke_time_us is not None:
                raise DecisionConflict(approval_id=approval.approval_id, rule="taken_back")
            if (decision.verdict, decision.answer_json) != (mine.verdict, mine.answer_json):
                raise DecisionConflict(approval_id=approval.approval_id, rule="voted_otherwise")
            return True
    return False


def _check(gated: Gated, who: Onlooker, command: DecideCommand, capability: Capability | None) -> None:
    """Raises StateConflict, NotEligible, MalformedRequest."""
    approval, action = gated.approval, gated.action
    if (rule := pending_rule(gated)) is not None:
        is_over = gated.now_us >= approval.expire_time_us and approval.state is ApprovalState.PENDING
        state = ApprovalState.EXPIRED if is_over else approval.state
        raise StateConflict(action_id=action.action_id, state=state.value, rule=rule)
    problem = who.problem(approval, action, capability, gated.now_us)
    if problem is not None:
        raise NotEligible(approval_id=approval.approval_id, problem=problem.value)
    if command.verdict is not VoteVerdict.DENY:
        _check_evidence(approval, command)


def pending_rule(gated: Gated) -> str | None:
    """What stands against a vote; None: nothing."""
    approval, action = gated.approval, gated.action
    if approval.state is not ApprovalState.PENDING or gated.now_us >= approval.expire_time_us:
        return "not_pending"
    if action.state is not ActionState.WAITING or action.approval_id != approval.approval_id:
        return "not_waiting"
    return "cancel_requested" if action.cancel_requested_time_us is not None else None


def _check_evidence(approval: Approval, command: DecideCommand) -> None:
    """Whoever says no need not show anything. Raises MalformedRequest."""
    given = {
        Evidence.REASON: ("reason", command.reason),
        Evidence.TICKET: ("evidence.ticket", command.ticket),
        Evidence.ATTACHMENT: ("evidence.attachments", "".join(command.attachments)),
    }
    violations = tuple(
        FieldViolation(field=given[kind][0], rule="evidence", description="the terms ask for it")
        for kind in Evidence
        if kind in approval.terms.evidence and not _is_seen(given[kind][1])
    )
    if violations:
        raise MalformedRequest(violations=violations)


def _is_seen(text: str) -> bool:
    """Whether there is anything to read in it: marks, controls and separators alone show nothing."""
    return any(unicodedata.category(each)[0] not in "CMZ" for each in text)


async def _count(
    connection: Connection, gated: Gated, known: Sequence[Decision], mine: Decision
) -> tuple[Action, int] | None:
    """The vote is kept, and what follows from it is done. The ready action and the time, if it completes the rule."""
    approval = gated.approval
    await moves.insert_decision(connection, approval.tenant, approval.approval_id, mine, gated.now)
    is_no = mine.verdict is VoteVerdict.DENY
    completes = not is_no and satisfied(approval.terms.rule, votes_of([*known, mine]))
    await tell_others(connection, gated, decided(approval, mine, _state_after(mine, completes=completes)))
    if is_no:
        gated = await tell(connection, gated, decided_fact(approval, mine, completes=True))
        await end_gated(connection, gated, ApprovalState.DENIED, denied(gated.action, "DENIED", mine.reason))
        return None
    fact = decided_fact(approval, mine, completes=completes)
    if completes:
        return await make_ready(connection, gated, fact), gated.now_us
    await tell(connection, gated, fact)
    await moves.touch(connection, approval)
    return None


def _state_after(decision: Decision, *, completes: bool) -> ApprovalState:
    if decision.verdict is VoteVerdict.DENY:
        return ApprovalState.DENIED
    return ApprovalState.GRANTED if completes else ApprovalState.PENDING


def decided_fact(
    approval: Approval, decision: Decision, *, completes: bool, taken_back: bool = False, reason: str = ""
) -> Fact:
    """`taken_back`: the vote was, for this reason."""
    return fact_of(
        EventType.APPROVAL_DECIDED,
        {
            "approval_id": approval.approval_id,
            "completes": completes,
            "decision_id": decision.decision_id,
            "reason": reason if taken_back else decision.reason,
            "taken_back": taken_back,
            "verdict": decision.verdict.value,
            "voter": decision.voter,
        },
    )
