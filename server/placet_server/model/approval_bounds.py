"""What terms may be declared, by a contract or by policy. What several of them make together is larger, and has
bounds of its own.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from placet_server.model.approval import Quorum, Rule, Selector, Terms, quorums
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import format_terms, parse_terms

DEPTH_MAX = 4
QUORUMS_MAX = 16
COUNT_MAX = 16
NAMES_MAX = 32
TTL_SECONDS_MAX = 365 * 86400
LOGIN_AGE_SECONDS_MAX = 30 * 86400
LOGIN_STRENGTHS_MAX = 8
MATERIAL_PATHS_MAX = 32
JOINED_LENGTH_MAX = 32 * 1024

SUBJECT_LENGTH_MAX = 256
NAME_LENGTH_MAX = 128
POINTER_LENGTH_MAX = 256
POINTER = re.compile(r"(/([^~/]|~[01])*)*")


class TermsProblem(NamedTuple):
    """`member`: of the terms as the contract has them on the wire."""

    member: str
    code: str
    message: str


def read_terms(text: str) -> Terms:
    """Terms that may be declared. Raises TermsRefused for the first problem."""
    terms = parse_terms(text)
    for problem in terms_problems(terms):
        raise TermsRefused(problem.message, text, 0)
    return terms


def is_too_large(joined: Terms) -> bool:
    """More than one request can carry: whoever joined them refuses."""
    return len(format_terms(joined)) > JOINED_LENGTH_MAX


def terms_problems(terms: Terms) -> Iterator[TermsProblem]:
    """Every problem."""
    yield from _rule_problems(terms.rule)
    yield from _span_problems(terms)
    if (escalation := terms.escalation) is not None:
        yield from _selector_problems(escalation.to, "escalation.to")
    if terms.login_strengths is not None:
        yield from _strength_problems(terms.login_strengths)
    if len(terms.material_paths) > MATERIAL_PATHS_MAX:
        text = f"At most {MATERIAL_PATHS_MAX} material paths; name a parent instead."
        yield TermsProblem("material_paths", "material_paths_too_many", text)
    for path in sorted(terms.material_paths):
        if len(path) > POINTER_LENGTH_MAX or not path.isprintable() or not POINTER.fullmatch(path):
            text = (
                f"A JSON Pointer such as /amount or /items/*/iban, at most {POINTER_LENGTH_MAX} characters."
            )
            yield TermsProblem("material_paths", "material_path_malformed", text)
            return


def _rule_problems(rule: Rule) -> Iterator[TermsProblem]:
    if _depth(rule) > DEPTH_MAX:
        yield TermsProblem("rule", "approval_rule_too_deep", f"At most {DEPTH_MAX} rules within each other.")
    found = list(quorums(rule))
    if len(found) > QUORUMS_MAX:
        yield TermsProblem("rule", "approval_rule_too_large", f"At most {QUORUMS_MAX} quorums.")
    for quorum in found:
        yield from _quorum_problems(quorum)


def _quorum_problems(quorum: Quorum) -> Iterator[TermsProblem]:
    if not 1 <= quorum.count <= COUNT_MAX:
        text = f"A quorum is of 1 to {COUNT_MAX} people, not of {quorum.count}."
        yield TermsProblem("rule", "approval_count_range", text)
    yield from _selector_problems(quorum.who, "rule")
    who = quorum.who
    if not who.roles and not who.groups and 0 < len(who.subjects) < quorum.count:
        text = f"{quorum.count} people are asked for, and {len(who.subjects)} named: nobody can satisfy that."
        yield TermsProblem("rule", "approval_never_satisfied", text)


def _selector_problems(who: Selector, member: str) -> Iterator[TermsProblem]:
    names = [*who.subjects, *who.roles, *who.groups]
    if not 1 <= len(names) <= NAMES_MAX:
        text = f"A selector names 1 to {NAMES_MAX} subjects, roles and groups."
        yield TermsProblem(member, "selector_size", text)
    if not all(_is_name(name, SUBJECT_LENGTH_MAX) for name in who.subjects) or not all(
        _is_name(name, NAME_LENGTH_MAX) for name in who.roles | who.groups
    ):
        text = (
            f"Printable, at most {SUBJECT_LENGTH_MAX} characters for a subject, {NAME_LENGTH_MAX} for others."
        )
        yield TermsProblem(member, "selector_name", text)


def _span_problems(terms: Terms) -> Iterator[TermsProblem]:
    if not 1 <= terms.ttl_seconds <= TTL_SECONDS_MAX:
        yield TermsProblem("ttl", "approval_ttl_range", "Between 1 s and 365 days.")
    age = terms.login_age_seconds_max
    if age is not None and not 1 <= age <= LOGIN_AGE_SECONDS_MAX:
        yield TermsProblem("login_age_max", "login_age_range", "Between 1 s and 30 days.")
    if (escalation := terms.escalation) is not None and not 1 <= escalation.after_seconds < terms.ttl_seconds:
        text = "At least 1 s, and before the request expires."
        yield TermsProblem("escalation.after", "escalation_range", text)


def _strength_problems(strengths: frozenset[str]) -> Iterator[TermsProblem]:
    if not 1 <= len(strengths) <= LOGIN_STRENGTHS_MAX:
        text = f"1 to {LOGIN_STRENGTHS_MAX} login strengths, or none said for any login."
        yield TermsProblem("login_strengths", "login_strengths_size", text)
    if not all(_is_name(strength, NAME_LENGTH_MAX) for strength in strengths):
        text = f"Printable, at most {NAME_LENGTH_MAX} characters."
        yield TermsProblem("login_strengths", "login_strength_name", text)


def _is_name(name: str, length_max: int) -> bool:
    return 0 < len(name) <= length_max and name.isprintable()


def _depth(rule: Rule) -> int:
    return 1 if isinstance(rule, Quorum) else 1 + max(map(_depth, rule.rules))
