"""Policy sets and decisions, to model and back."""

from __future__ import annotations

from placet.v1 import policy_service_pb2 as pb
from placet_server.core.admission.policy_dry_run import Change
from placet_server.core.decision.policy_explain import Explanation
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.manifest import Problem
from placet_server.model.policy import Overlay, PolicySet, PolicyVerdict
from placet_server.rpc.convert.capability import HAZARD, HAZARD_MEMBER
from placet_server.rpc.convert.time import set_timestamp
from placet_server.rpc.text import cut
from placet_server.store.policy import PolicySetRow, StoredPolicySet


def policy_set_of(message: pb.PolicySet) -> PolicySet:
    """The message has passed validation. Raises MalformedRequest for what no text may have."""
    texts = {"name": message.name, "cedar": message.cedar}
    for at, each in enumerate(message.overlays):
        texts |= {f"overlays[{at}].pattern": each.pattern, f"overlays[{at}].approval": each.approval}
    violations = [
        FieldViolation(field=f"policy_set.{field}", rule="text", description="has a NUL character")
        for field, text in texts.items()
        if "\x00" in text
    ]
    if violations:
        raise MalformedRequest(violations=tuple(violations))
    return PolicySet(
        name=message.name, cedar=message.cedar, overlays=tuple(map(_overlay_of, message.overlays))
    )


def policy_set_message(document: PolicySet) -> pb.PolicySet:
    return pb.PolicySet(name=document.name, cedar=document.cedar, overlays=map(_overlay, document.overlays))


def revision_message(row: PolicySetRow | StoredPolicySet) -> pb.PolicySetRevision:
    message = pb.PolicySetRevision(
        revision=row.revision,
        digest=row.digest,
        name=row.name if isinstance(row, PolicySetRow) else row.document.name,
        policy_count=row.policy_count,
        admitted_by=row.admitted_by,
        restores=row.restores or 0,
    )
    if row.create_time_us:
        set_timestamp(message.create_time, row.create_time_us)
    return message


def problem_message(problem: Problem) -> pb.PolicyProblem:
    return pb.PolicyProblem(
        path=cut(problem.path, 512), code=problem.code, message=cut(problem.message, 1024)
    )


def decision_message(verdict: PolicyVerdict) -> pb.PolicyDecision:
    return pb.PolicyDecision(
        allowed=verdict.allowed,
        problem=verdict.problem,
        policies=[pb.DecidingPolicy(name=each.policy, digest=each.digest) for each in verdict.policies],
        digest=verdict.digest,
        approval=verdict.approval,
    )


def change_message(change: Change) -> pb.PolicyChange:
    action = change.action
    message = pb.PolicyChange(
        action_id=action.action_id,
        capability=action.capability,
        version=action.version,
        requester=action.requester.subject,
        after=decision_message(change.after),
    )
    if change.before is not None:
        message.before.CopyFrom(decision_message(change.before))
    set_timestamp(message.create_time, action.create_time_us)
    return message


def explanation_message(found: Explanation) -> pb.ExplainDecisionResponse:
    message = pb.ExplainDecisionResponse(
        id=found.id,
        is_action=found.is_action,
        capability=found.capability,
        version=found.version,
        requester=found.requester,
    )
    set_timestamp(message.create_time, found.create_time_us)
    if found.verdict is not None:
        message.decision.CopyFrom(decision_message(found.verdict))
        for policy in message.decision.policies:
            policy.cedar = found.texts.get(policy.digest, "")
    return message


def _overlay_of(message: pb.PolicyOverlay) -> Overlay:
    hazards = frozenset(HAZARD_MEMBER[number] for number in message.hazards)
    return Overlay(pattern=message.pattern, hazards=hazards, approval=message.approval)


def _overlay(overlay: Overlay) -> pb.PolicyOverlay:
    return pb.PolicyOverlay(
        pattern=overlay.pattern,
        hazards=sorted(HAZARD[hazard] for hazard in overlay.hazards),
        approval=overlay.approval,
    )
