"""Approval terms to model and back."""

from __future__ import annotations

from functools import lru_cache

from google.protobuf.duration_pb2 import Duration

from placet.v1 import approval_pb2 as pb
from placet_server.model.approval import (
    TTL_DEFAULT_SECONDS,
    AllOf,
    Escalation,
    Evidence,
    Quorum,
    Rule,
    Selector,
    Terms,
    all_of,
    any_of,
)
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import format_terms, parse_terms
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.rpc.convert.enumeration import members, numbers
from placet_server.rpc.convert.time import duration, seconds

EVIDENCE = numbers(pb.EvidenceKind, "EVIDENCE_KIND_", Evidence)
EVIDENCE_MEMBER = members(pb.EvidenceKind, "EVIDENCE_KIND_", Evidence)


def terms_of(message: pb.ApprovalTerms, path: str) -> Terms:
    """By their text or by their members. Raises MalformedRequest for what says nothing, or two things.

    What may not be declared is `approval_bounds`' to say.
    """
    if not message.text:
        return _terms_of_members(message, path)
    try:
        terms = parse_terms(message.text)
    except TermsRefused as refused:
        raise _refused(f"{path}.text", "approval_text", str(refused)) from None
    rest = [field.name for field, _ in message.ListFields() if field.name != "text"]
    if rest and terms != _terms_of_members(message, path):
        raise _refused(f"{path}.text", "approval_text", f"does not say what {', '.join(rest)} say")
    return terms


def terms_message(terms: Terms) -> pb.ApprovalTerms:
    """One of the caller's own."""
    message = pb.ApprovalTerms()
    message.CopyFrom(_kept_message(terms))
    return message


# Of many approvals most have the same terms as others.
@lru_cache(maxsize=256)
def _kept_message(terms: Terms) -> pb.ApprovalTerms:
    message = pb.ApprovalTerms(
        rule=_rule_message(terms.rule),
        requester_may_approve=terms.requester_may_approve,
        evidence=sorted(EVIDENCE[kind] for kind in terms.evidence),
        login_strengths=sorted(terms.login_strengths or ()),
        ttl=duration(terms.ttl_seconds),
        material_paths=sorted(terms.material_paths),
        text=format_terms(terms),
    )
    if terms.login_age_seconds_max is not None:
        message.login_age_max.CopyFrom(duration(terms.login_age_seconds_max))
    if (escalation := terms.escalation) is not None:
        message.escalation.after.CopyFrom(duration(escalation.after_seconds))
        message.escalation.to.CopyFrom(_selector_message(escalation.to))
    return message


def _terms_of_members(message: pb.ApprovalTerms, path: str) -> Terms:
    if 0 in message.evidence:
        raise _refused(f"{path}.evidence", "enum.not_in", "EVIDENCE_KIND_UNSPECIFIED is none")
    has_age, has_ttl = message.HasField("login_age_max"), message.HasField("ttl")
    return Terms(
        rule=_rule_of(message.rule, f"{path}.rule"),
        requester_may_approve=message.requester_may_approve,
        evidence=frozenset(EVIDENCE_MEMBER[number] for number in message.evidence),
        login_strengths=frozenset(message.login_strengths) or None,
        login_age_seconds_max=_span_of(message.login_age_max, f"{path}.login_age_max") if has_age else None,
        ttl_seconds=_span_of(message.ttl, f"{path}.ttl") if has_ttl else TTL_DEFAULT_SECONDS,
        escalation=_escalation_of(message, f"{path}.escalation"),
        material_paths=frozenset(message.material_paths),
    )


def _rule_of(message: pb.ApprovalRule, path: str) -> Rule:
    kind = message.WhichOneof("rule")
    if kind == "quorum":
        return Quorum(message.quorum.count, _selector_of(message.quorum.who))
    if kind is None:
        raise _refused(path, "required", "say who must say yes: quorum, all_of or any_of, or text")
    parts = message.all_of.rules if kind == "all_of" else message.any_of.rules
    if not parts:
        raise _refused(f"{path}.{kind}.rules", "required", "one rule or more")
    rules = [_rule_of(part, f"{path}.{kind}.rules[{index}]") for index, part in enumerate(parts)]
    return all_of(rules) if kind == "all_of" else any_of(rules)


def _escalation_of(message: pb.ApprovalTerms, path: str) -> Escalation | None:
    if not message.HasField("escalation"):
        return None
    escalation = message.escalation
    return Escalation(
        after_seconds=_span_of(escalation.after, f"{path}.after"), to=_selector_of(escalation.to)
    )


def _span_of(span: Duration, path: str) -> int:
    whole = int(seconds(span))
    if span.nanos:
        raise _refused(path, "whole_seconds", "a span of whole seconds")
    return whole


def _selector_of(message: pb.Selector) -> Selector:
    return Selector(
        subjects=frozenset(message.subjects),
        roles=frozenset(message.roles),
        groups=frozenset(message.groups),
    )


def _rule_message(rule: Rule) -> pb.ApprovalRule:
    if isinstance(rule, Quorum):
        return pb.ApprovalRule(quorum=pb.Quorum(count=rule.count, who=_selector_message(rule.who)))
    # In one order, so that equal terms are equal messages.
    parts = sorted(
        map(_rule_message, rule.rules), key=lambda part: part.SerializeToString(deterministic=True)
    )
    rules = pb.ApprovalRules(rules=parts)
    return pb.ApprovalRule(all_of=rules) if isinstance(rule, AllOf) else pb.ApprovalRule(any_of=rules)


def _selector_message(who: Selector) -> pb.Selector:
    return pb.Selector(subjects=sorted(who.subjects), roles=sorted(who.roles), groups=sorted(who.groups))


def _refused(field: str, rule: str, description: str) -> MalformedRequest:
    violation = FieldViolation(field=field, rule=rule, description=description)
    return MalformedRequest(violations=(violation,))
