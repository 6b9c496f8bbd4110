"""Who must say yes before an action may start, and under which conditions.

Terms come from a contract and from policy; `join` makes one of several, never weaker than any. A rule is made of
quorums: so many distinct people of those whom a selector names. Nobody counts twice over one quorum. Who matches two
quorums of an AllOf counts in both: to have two people for certain, ask for a quorum of two.

Escalation tells more people, and never changes who counts: time alone makes no approval easier.

The text form is `approval_text`, what may be declared `approval_bounds`, what a change takes back `approval_change`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Protocol

from placet_server.model.caller import CallerKind
from placet_server.model.json_text import canonicalize_value

TTL_DEFAULT_SECONDS = 86400

_BINDING_BYTES_MAX = 2**20
# Clocks of who issues tokens may be ahead of ours.
_CLOCK_SKEW_US = 60_000_000


class Evidence(StrEnum):
    """What a decision must come with."""

    REASON = "REASON"
    TICKET = "TICKET"
    ATTACHMENT = "ATTACHMENT"


class Problem(StrEnum):
    """Why somebody's vote would not count."""

    REQUESTER = "requester"
    NOT_SELECTED = "not_selected"
    NOT_A_PERSON = "not_a_person"
    LOGIN_TOO_WEAK = "login_too_weak"
    LOGIN_TOO_OLD = "login_too_old"
    MATERIAL_PATH_HIDDEN = "material_path_hidden"


class Selected(Protocol):
    """Whom a selector looks at."""

    @property
    def subject(self) -> str: ...
    @property
    def roles(self) -> Collection[str]: ...
    @property
    def groups(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Everybody with any of these."""

    subjects: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def selects(self, person: Selected) -> bool:
        return (
            person.subject in self.subjects
            or not self.roles.isdisjoint(person.roles)
            or not self.groups.isdisjoint(person.groups)
        )

    def __or__(self, other: Selector) -> Selector:
        return Selector(
            subjects=self.subjects | other.subjects,
            roles=self.roles | other.roles,
            groups=self.groups | other.groups,
        )


@dataclass(frozen=True, slots=True)
class Quorum:
    """So many distinct people of those."""

    count: int
    who: Selector


@dataclass(frozen=True, slots=True)
class AllOf:
    """Made by `all_of`: two rules or more, none of them an AllOf."""

    rules: frozenset[Rule]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Made by `any_of`: two rules or more, none of them an AnyOf."""

    rules: frozenset[Rule]


Rule = Quorum | AllOf | AnyOf


def all_of(rules: Iterable[Rule]) -> Rule:
    """Of one rule that rule. Raises ValueError for none."""
    flat = frozenset(chain.from_iterable(r.rules if isinstance(r, AllOf) else (r,) for r in rules))
    return _only(flat) if len(flat) < 2 else AllOf(flat)


def any_of(rules: Iterable[Rule]) -> Rule:
    """Of one rule that rule. Raises ValueError for none."""
    flat = frozenset(chain.from_iterable(r.rules if isinstance(r, AnyOf) else (r,) for r in rules))
    return _only(flat) if len(flat) < 2 else AnyOf(flat)


def _only(rules: frozenset[Rule]) -> Rule:
    if not rules:
        raise ValueError("a rule of no rules")
    return next(iter(rules))


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """These are told, too, so long after the request."""

    after_seconds: int
    to: Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """`login_strengths`: any of these; None: any at all. `ttl_seconds` counts from the request to the action's start.

    `material_paths`: JSON Pointers into the input that a voter must be able to see in clear.
    """

    rule: Rule
    requester_may_approve: bool = False
    evidence: frozenset[Evidence] = frozenset()
    login_strengths: frozenset[str] | None = None
    login_age_seconds_max: int | None = None
    ttl_seconds: int = TTL_DEFAULT_SECONDS
    escalation: Escalation | None = None
    material_paths: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """Who would decide, with the authority that the server established.

    `delegated`: somebody else acts in this name, which is no person's own word.
    """

    subject: str
    kind: CallerKind
    roles: Collection[str] = ()
    groups: Collection[str] = ()
    delegated: bool = False
    login_strength: str = ""
    login_methods: Collection[str] = ()
    login_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Vote:
    """A vote that was cast, with the authority that it was cast under."""

    subject: str
    roles: Collection[str] = ()
    groups: Collection[str] = ()
    approves: bool = True


def join(*terms: Terms) -> Terms:
    """What satisfies each of them. Raises ValueError for none.

    Login strengths that have nothing in common leave the empty set: no login will do.
    """
    strengths = [t.login_strengths for t in terms if t.login_strengths is not None]
    ages = [t.login_age_seconds_max for t in terms if t.login_age_seconds_max is not None]
    return Terms(
        rule=all_of(t.rule for t in terms),
        requester_may_approve=all(t.requester_may_approve for t in terms),
        evidence=frozenset[Evidence]().union(*(t.evidence for t in terms)),
        login_strengths=frozenset.intersection(*strengths) if strengths else None,
        login_age_seconds_max=min(ages, default=None),
        ttl_seconds=min(t.ttl_seconds for t in terms),
        escalation=_earliest([t.escalation for t in terms if t.escalation is not None]),
        material_paths=frozenset[str]().union(*(t.material_paths for t in terms)),
    )


def _earliest(escalations: list[Escalation]) -> Escalation | None:
    if not escalations:
        return None
    to = escalations[0].to
    for escalation in escalations[1:]:
        to = to | escalation.to
    return Escalation(after_seconds=min(e.after_seconds for e in escalations), to=to)


def satisfied(rule: Rule, votes: Collection[Vote]) -> bool:
    """Of denials this knows nothing: one that is authorized ends the request."""
    if isinstance(rule, Quorum):
        return count_for(rule, votes) >= rule.count
    fits = all if isinstance(rule, AllOf) else any
    return fits(satisfied(each, votes) for each in rule.rules)


def count_for(quorum: Quorum, votes: Iterable[Vote]) -> int:
    """How many distinct people have said yes."""
    return len({vote.subject for vote in votes if vote.approves and quorum.who.selects(vote)})


def remaining(rule: Rule, votes: Collection[Vote]) -> Rule | None:
    """What these votes leave to be said: counts are of further people. None if it is satisfied."""
    if satisfied(rule, votes):
        return None
    if isinstance(rule, Quorum):
        return Quorum(rule.count - count_for(rule, votes), rule.who)
    left = [each for each in (remaining(each, votes) for each in rule.rules) if each is not None]
    return all_of(left) if isinstance(rule, AllOf) else any_of(left)


def quorums(rule: Rule) -> Iterator[Quorum]:
    if isinstance(rule, Quorum):
        yield rule
    else:
        for each in rule.rules:
            yield from quorums(each)


def selected(terms: Terms) -> Selector:
    """All whose vote may count, in one selector: for lists."""
    found = Selector()
    for quorum in quorums(terms.rule):
        found = found | quorum.who
    return found


def eligible(
    terms: Terms,
    voter: Voter,
    *,
    requesters: Collection[str],
    now_us: int,
    sees_sensitive: bool,
    sensitive_paths: Iterable[str],
) -> Problem | None:
    """Why this vote would not count; None if it would.

    `requesters`: who asked, and every subject of its delegation chain.
    """
    if voter.kind is not CallerKind.USER or voter.delegated:
        return Problem.NOT_A_PERSON
    if voter.subject in requesters and not terms.requester_may_approve:
        return Problem.REQUESTER
    if not any(quorum.who.selects(voter) for quorum in quorums(terms.rule)):
        return Problem.NOT_SELECTED
    if terms.login_strengths is not None and not _is_strong(voter, terms.login_strengths):
        return Problem.LOGIN_TOO_WEAK
    if terms.login_age_seconds_max is not None and not _is_fresh(voter, terms.login_age_seconds_max, now_us):
        return Problem.LOGIN_TOO_OLD
    if not sees_sensitive and _is_hidden(terms.material_paths, tuple(sensitive_paths)):
        return Problem.MATERIAL_PATH_HIDDEN
    return None


def _is_strong(voter: Voter, strengths: frozenset[str]) -> bool:
    """By the class of its login or by one of the methods: issuers say it in the one or in the other."""
    return voter.login_strength in strengths or not strengths.isdisjoint(voter.login_methods)


def _is_fresh(voter: Voter, age_seconds_max: int, now_us: int) -> bool:
    if voter.login_time_us is None:
        return False
    return -_CLOCK_SKEW_US <= now_us - voter.login_time_us <= age_seconds_max * 1_000_000


def _is_hidden(material: Iterable[str], sensitive: tuple[str, ...]) -> bool:
    return any(_overlap(shown.split("/"), kept.split("/")) for shown in material for kept in sensitive)


def _overlap(one: list[str], other: list[str]) -> bool:
    """Whether one is at or below the other; `*` stands for any element."""
    return all(a == b or "*" in (a, b) for a, b in zip(one, other, strict=False))


def binding_digest(
    *,
    tenant: str,
    capability: str,
    version: str,
    contract_digest: str,
    input_digest: str,
    requester: object,
    verdict_digest: str,
) -> str:
    """Hex SHA-256 over what a decision is about: another value anywhere is another question.

    `requester`: the JSON value of who asked.
    """
    bound = {
        "tenant": tenant,
        "capability": capability,
        "version": version,
        "contract": contract_digest,
        "input": input_digest,
        "requester": requester,
        "verdict": verdict_digest,
    }
    return canonicalize_value(bound, bytes_max=_BINDING_BYTES_MAX).digest.hex()
