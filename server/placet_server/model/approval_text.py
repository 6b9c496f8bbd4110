"""Approval terms as text: in contracts, in policy, in documents, and for people to read.

    2 of role:finance,user:anna and (1 of role:legal or 1 of role:ceo); ttl=4h; evidence=reason,ticket; login=mfa|hwk;
    login_age=10m; escalate=role:head after 1h; requester=may; material=/amount,/to

    terms    = rule *( ";" option )
    rule     = part *( "and" part ) / part *( "or" part )
    part     = count "of" who / "(" rule ")"
    who      = name *( "," name )
    name     = ( "role:" / "group:" / "user:" ) value
    option   = "ttl=" span / "evidence=" words / "login=" [ value *( "|" value ) ] / "login_age=" span
             / "escalate=" who "after" span / "requester=may" / "material=" value *( "," value )
    span     = number ( "s" / "m" / "h" / "d" )

A value with other characters than a word has is a JSON string. `format_terms` writes one text for equal terms, always
with its ttl.
"""

import json
import re
from collections.abc import Collection
from functools import lru_cache

from placet_server.model.approval import (
    AllOf,
    Escalation,
    Evidence,
    Quorum,
    Rule,
    Selector,
    Terms,
    Vote,
    remaining,
)
from placet_server.model.approval_reader import Reader

_KEPT_LENGTH_MAX = 1024
_PLAIN = re.compile(r'[^\s"(),;=|]+')
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_KINDS = {"role": "roles", "group": "groups", "user": "subjects"}


def parse_terms(text: str) -> Terms:
    """Raises TermsRefused. Whether such terms may be declared is `approval_bounds.read_terms`' to say."""
    return _parsed(text) if len(text) <= _KEPT_LENGTH_MAX else Reader(text).terms()


# Of many approvals most have the same terms as others.
@lru_cache(maxsize=512)
def _parsed(text: str) -> Terms:
    return Reader(text).terms()


def parse_rule(text: str) -> Rule:
    """The part before the first option. Raises TermsRefused."""
    return Reader(text).lone_rule()


def parse_selector(text: str) -> Selector:
    """Raises TermsRefused."""
    return Reader(text).lone_selector()


def parse_span(text: str) -> int:
    """Seconds. Raises TermsRefused."""
    return Reader(text).lone_span()


def parse_escalation(text: str) -> Escalation:
    """Raises TermsRefused."""
    return Reader(text).lone_escalation()


def format_terms(terms: Terms) -> str:
    options = [f"ttl={format_span(terms.ttl_seconds)}"]
    if terms.evidence:
        options.append("evidence=" + ",".join(e.value.lower() for e in Evidence if e in terms.evidence))
    if terms.login_strengths is not None:
        options.append("login=" + "|".join(map(_value, sorted(terms.login_strengths))))
    if terms.login_age_seconds_max is not None:
        options.append(f"login_age={format_span(terms.login_age_seconds_max)}")
    if (escalation := terms.escalation) is not None:
        after = format_span(escalation.after_seconds)
        options.append(f"escalate={format_selector(escalation.to)} after {after}")
    if terms.requester_may_approve:
        options.append("requester=may")
    if terms.material_paths:
        options.append("material=" + ",".join(map(_value, sorted(terms.material_paths))))
    return "; ".join((format_rule(terms.rule), *options))


@lru_cache(maxsize=512)
def format_rule(rule: Rule) -> str:
    if isinstance(rule, Quorum):
        return f"{rule.count} of {format_selector(rule.who)}"
    word = " and " if isinstance(rule, AllOf) else " or "
    return word.join(
        sorted(format_rule(r) if isinstance(r, Quorum) else f"({format_rule(r)})" for r in rule.rules)
    )


def format_selector(who: Selector) -> str:
    return ",".join(
        f"{kind}:{_value(name)}" for kind, member in _KINDS.items() for name in sorted(getattr(who, member))
    )


def format_span(seconds: int) -> str:
    unit = next(unit for unit, size in _SECONDS.items() if seconds % size == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def missing(rule: Rule, votes: Collection[Vote]) -> str:
    """What is still needed, as a rule whose counts say how many more; empty if nothing is."""
    left = remaining(rule, votes)
    return "" if left is None else format_rule(left)


def _value(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)
