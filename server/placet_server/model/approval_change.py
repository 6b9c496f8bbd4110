"""What a change of approval terms takes back.

A rule is weaker than another if some votes satisfy it that do not satisfy the other. `weaker_by` finds such votes, or
shows that there are none. It rests on this: a rule holds if all quorums of one of its ways hold, and fails if all
quorums of one of its gaps fail. For a way of the one and a gap of the other, people are chosen that fill the first and
leave the second unfilled. Who has no name there, and only marks (roles, groups) that no quorum of the gap looks for,
can be had in any number; everybody else uses up places that the gap has left, and among those it is searched.
"""

from collections.abc import Iterator
from itertools import count, product
from typing import NamedTuple

from placet_server.model.approval import AllOf, AnyOf, Quorum, Rule, Selector, Terms, Vote

_COMBINATIONS_MAX = 256
_STEPS_MAX = 1_000


class Loosening(NamedTuple):
    """`member`: of the terms as the contract has them on the wire."""

    member: str
    code: str
    message: str


class TooManyWays(Exception):
    """Rules that cannot be compared within bounds."""


def loosened(old: Terms, new: Terms) -> Iterator[Loosening]:
    """Nothing if whatever satisfies the new terms would have satisfied the old ones."""
    yield from _of_rule(old.rule, new.rule)
    if new.requester_may_approve and not old.requester_may_approve:
        text = "Who asks may now approve."
        yield Loosening("requester_may_approve", "approval_requester_admitted", text)
    if unneeded := sorted(old.evidence - new.evidence):
        text = f"No longer needed for a decision: {', '.join(unneeded)}."
        yield Loosening("evidence", "approval_evidence_removed", text)
    if old.login_strengths is not None:
        if new.login_strengths is None:
            text = "A voter's login may now be of any strength."
            yield Loosening("login_strengths", "approval_login_weaker", text)
        elif more := sorted(new.login_strengths - old.login_strengths):
            text = f"Logins that will now do, too: {', '.join(more)}."
            yield Loosening("login_strengths", "approval_login_weaker", text)
    if _is_longer(old.login_age_seconds_max, new.login_age_seconds_max):
        yield Loosening("login_age_max", "approval_login_older", "A voter's login may be older than before.")
    if new.ttl_seconds > old.ttl_seconds:
        yield Loosening("ttl", "approval_ttl_raised", "An approval is valid for longer than before.")
    if gone := sorted(old.material_paths - new.material_paths):
        text = f"A voter need no longer see: {', '.join(gone)}."
        yield Loosening("material_paths", "approval_material_paths_removed", text)


def _of_rule(old: Rule, new: Rule) -> Iterator[Loosening]:
    try:
        votes = weaker_by(new, old)
    except TooManyWays:
        text = "The rule has changed, and is too large to be told as strong as before."
        yield Loosening("rule", "approval_rule_loosened", text)
        return
    if votes is not None:
        text = f"Enough now, and not before: {', '.join(map(_shown, votes))}."
        yield Loosening("rule", "approval_rule_loosened", text)


def _shown(vote: Vote) -> str:
    marks = ", ".join([*(f"role:{role}" for role in vote.roles), *(f"group:{g}" for g in vote.groups)])
    return f"{vote.subject} with {marks}" if marks else vote.subject


def _is_longer(old: int | None, new: int | None) -> bool:
    return old is not None and (new is None or new > old)


def weaker_by(rule: Rule, other: Rule) -> tuple[Vote, ...] | None:
    """Votes that satisfy the rule and not the other; None if there are none. Raises TooManyWays."""
    if _conjuncts(other) <= _conjuncts(rule):
        return None
    budget = _Budget(_STEPS_MAX)
    for way, gap in product(_sets(rule, AllOf), _sets(other, AnyOf)):
        votes = _Search(tuple(way), tuple(gap), budget).votes()
        if votes is not None:
            return votes
    return None


def _conjuncts(rule: Rule) -> frozenset[Rule]:
    return rule.rules if isinstance(rule, AllOf) else frozenset({rule})


def _sets(rule: Rule, conjunctive: type[AllOf] | type[AnyOf]) -> set[frozenset[Quorum]]:
    """The ways of a rule by AllOf, its gaps by AnyOf."""
    if isinstance(rule, Quorum):
        return {frozenset({rule})}
    every = isinstance(rule, conjunctive)
    found: set[frozenset[Quorum]] = {frozenset()} if every else set()
    for each in rule.rules:
        more = _sets(each, conjunctive)
        found = {a | b for a, b in product(found, more)} if every else found | more
        if len(found) > _COMBINATIONS_MAX:
            raise TooManyWays
    return found


class _Budget:
    """Steps that are left for one comparison."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyWays


class _Person(NamedTuple):
    """`name` empty: one of any number. `fills` and `uses`: indexes into the way and into the gap."""

    name: str
    who: Selector
    fills: frozenset[int]
    uses: frozenset[int]


class _Search:
    """For people who fill a way and leave a gap."""

    def __init__(self, way: tuple[Quorum, ...], gap: tuple[Quorum, ...], budget: _Budget) -> None:
        self._way = way
        self._gap = gap
        self._budget = budget
        self._failed: set[object] = set()
        self._people = list(self._kinds_of_people())

    def votes(self) -> tuple[Vote, ...] | None:
        needs = tuple(quorum.count for quorum in self._way)
        places = tuple(quorum.count - 1 for quorum in self._gap)
        chosen = self._chosen(needs, places, frozenset())
        named = {name for quorum in (*self._way, *self._gap) for name in quorum.who.subjects}
        return None if chosen is None else _votes_of(chosen, named)

    def _chosen(
        self, needs: tuple[int, ...], places: tuple[int, ...], taken: frozenset[str]
    ) -> list[_Person] | None:
        unfilled = next((index for index, need in enumerate(needs) if need > 0), None)
        if unfilled is None:
            return []
        if (state := (needs, places, taken)) in self._failed:
            return None
        self._failed.add(state)
        self._budget.spend()
        for person in self._people:
            if unfilled not in person.fills or person.name in taken:
                continue
            if any(places[index] == 0 for index in person.uses):
                continue
            rest = self._chosen(
                tuple(max(0, need - (index in person.fills)) for index, need in enumerate(needs)),
                tuple(place - (index in person.uses) for index, place in enumerate(places)),
                taken | {person.name} if person.name else taken,
            )
            if rest is not None:
                return [person, *rest]
            if not person.uses and not person.name:
                # Who is had for nothing and without end has not sufficed: nobody else would.
                return None
        return None

    def _kinds_of_people(self) -> Iterator[_Person]:
        """Those who use up the least first. Each has all marks that use up no more than hers do."""
        who = [quorum.who for quorum in self._way]
        marks = [Selector(roles=frozenset({role})) for each in who for role in sorted(each.roles)]
        marks += [Selector(groups=frozenset({group})) for each in who for group in sorted(each.groups)]
        names = sorted({name for each in who for name in each.subjects})
        used_by = {mark: self._uses(mark) for mark in marks}
        for uses in sorted(self._unions(set(used_by.values())), key=lambda uses: (len(uses), sorted(uses))):
            for name in ("", *names):
                person = Selector(subjects=frozenset({name} if name else ()))
                all_used = uses | self._uses(person)
                for mark, used in used_by.items():
                    if used <= all_used:
                        person = person | mark
                fills = frozenset(i for i, quorum in enumerate(self._way) if _meet(quorum.who, person))
                yield _Person(name, person, fills, all_used)

    def _uses(self, person: Selector) -> frozenset[int]:
        return frozenset(i for i, quorum in enumerate(self._gap) if _meet(quorum.who, person))

    def _unions(self, sets: set[frozenset[int]]) -> set[frozenset[int]]:
        found = {frozenset[int]()}
        for each in sets:
            found |= {each | other for other in found}
            if len(found) > _COMBINATIONS_MAX:
                raise TooManyWays
        return found


def _meet(one: Selector, other: Selector) -> bool:
    return bool(one.subjects & other.subjects or one.roles & other.roles or one.groups & other.groups)


def _votes_of(people: list[_Person], named: set[str]) -> tuple[Vote, ...]:
    others = (name for number in count(1) if (name := f"somebody {number}") not in named)
    return tuple(
        Vote(
            subject=person.name or next(others),
            roles=tuple(sorted(person.who.roles)),
            groups=tuple(sorted(person.who.groups)),
        )
        for person in people
    )
