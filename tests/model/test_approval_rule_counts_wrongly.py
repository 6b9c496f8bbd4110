from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet_server.model.approval import (
    Escalation,
    Evidence,
    Problem,
    Selector,
    Terms,
    Vote,
    Voter,
    binding_digest,
    count_for,
    eligible,
    join,
    quorums,
    remaining,
    satisfied,
    selected,
)
from placet_server.model.approval_text import missing, parse_rule, parse_terms
from placet_server.model.caller import CallerKind
from tests.model.approval_strategies import SMALL_RULES, SMALL_TERMS, VOTES

FEW = settings(max_examples=30, deadline=None)
HOUR_US = 3_600_000_000
ANNA = Voter(subject="anna", kind=CallerKind.USER, roles=("finance",), login_strength="mfa", login_time_us=0)
STRICT = parse_terms("1 of role:finance; login=mfa|hwk; login_age=1h; material=/to,/lines/*/iban")


@FEW
@given(SMALL_TERMS, SMALL_TERMS, SMALL_TERMS)
def test_joining_depends_neither_on_order_nor_on_repetition(a: Terms, b: Terms, c: Terms) -> None:
    assert a == join(a) == join(a, a)
    assert join(a, b) == join(b, a) == join(a, b, a)
    assert join(join(a, b), c) == join(a, join(b, c)) == join(a, b, c)


@FEW
@given(SMALL_TERMS, SMALL_TERMS, VOTES)
def test_what_is_joined_is_satisfied_if_each_is(a: Terms, b: Terms, votes: list[Vote]) -> None:
    joined = join(a, b)
    assert satisfied(joined.rule, votes) == (satisfied(a.rule, votes) and satisfied(b.rule, votes))
    assert joined.ttl_seconds == min(a.ttl_seconds, b.ttl_seconds)
    assert a.evidence | b.evidence == joined.evidence


@FEW
@given(SMALL_RULES.map(lambda rule: Terms(rule=rule)), VOTES, VOTES)
def test_a_further_yes_never_takes_consent_away(terms: Terms, votes: list[Vote], more: list[Vote]) -> None:
    assert satisfied(terms.rule, [*votes, *more]) >= satisfied(terms.rule, votes)


@FEW
@given(SMALL_RULES.map(lambda rule: Terms(rule=rule)), VOTES)
def test_nobody_counts_twice_over_a_quorum_and_no_denial_counts(terms: Terms, votes: list[Vote]) -> None:
    people = {vote.subject for vote in votes if vote.approves}
    for quorum in quorums(terms.rule):
        assert count_for(quorum, votes) <= len(people)
    assert satisfied(terms.rule, votes) == satisfied(terms.rule, [v for v in votes if v.approves] * 2)


@FEW
@given(SMALL_RULES.map(lambda rule: Terms(rule=rule)), VOTES, st.data())
def test_what_is_still_missing_is_enough_and_not_there_yet(
    terms: Terms, votes: list[Vote], data: st.DataObject
) -> None:
    left = remaining(terms.rule, votes)
    assert satisfied(terms.rule, votes) == (left is None)
    if left is None:
        return
    new = [replace(vote, subject=f"new {vote.subject}") for vote in data.draw(VOTES)]
    if satisfied(left, new):
        assert satisfied(terms.rule, [*votes, *new])


def test_what_is_missing_is_told_as_a_rule_of_further_people() -> None:
    rule = parse_rule("2 of role:finance and (1 of role:legal or 1 of role:ceo)")
    assert "1 of role:ceo or 1 of role:legal" in missing(rule, ())
    anna = Vote(subject="anna", roles=("finance", "legal"))
    assert "1 of role:finance" == missing(rule, (anna, anna))
    assert "" == missing(rule, (anna, Vote(subject="ben", roles=("finance",))))


def test_one_person_counts_in_two_quorums_of_which_each_names_her() -> None:
    rule = parse_rule("1 of role:finance and 1 of role:legal")
    assert satisfied(rule, [Vote(subject="anna", roles=("finance", "legal"))])
    assert not satisfied(rule, [Vote(subject="anna", roles=("finance",))])


def test_joined_escalations_tell_everybody_at_the_earliest_and_let_nobody_more_vote() -> None:
    one = parse_terms("1 of role:finance; escalate=role:head after 2h")
    other = parse_terms("1 of role:finance; escalate=user:eve after 1h")
    joined = join(one, other)
    to = Selector(subjects=frozenset({"eve"}), roles=frozenset({"head"}))
    assert Escalation(after_seconds=3600, to=to) == joined.escalation
    assert Selector(roles=frozenset({"finance"})) == selected(joined)


def test_strengths_that_have_nothing_in_common_leave_no_login() -> None:
    joined = join(parse_terms("1 of role:finance; login=mfa"), parse_terms("1 of role:finance; login=hwk"))
    assert frozenset() == joined.login_strengths
    assert Problem.LOGIN_TOO_WEAK == _problem(joined, ANNA)
    assert frozenset({"mfa"}) == join(STRICT, parse_terms("1 of user:a; login=mfa|pwd")).login_strengths


@pytest.mark.parametrize(
    ("voter", "problem"),
    [
        (ANNA, None),
        (replace(ANNA, kind=CallerKind.SERVICE), Problem.NOT_A_PERSON),
        (replace(ANNA, kind=CallerKind.AGENT), Problem.NOT_A_PERSON),
        (replace(ANNA, delegated=True), Problem.NOT_A_PERSON),
        (replace(ANNA, subject="ben"), Problem.REQUESTER),
        (replace(ANNA, subject="agent"), Problem.REQUESTER),
        (replace(ANNA, roles=("Finance",), groups=("finance",)), Problem.NOT_SELECTED),
        (replace(ANNA, login_strength=""), Problem.LOGIN_TOO_WEAK),
        (replace(ANNA, login_strength="1", login_methods=("pwd",)), Problem.LOGIN_TOO_WEAK),
        (replace(ANNA, login_strength="1", login_methods=("mfa", "pwd")), None),
        (replace(ANNA, login_time_us=None), Problem.LOGIN_TOO_OLD),
        (replace(ANNA, login_time_us=-1), Problem.LOGIN_TOO_OLD),
        (replace(ANNA, login_time_us=HOUR_US + 61_000_000), Problem.LOGIN_TOO_OLD),
        (replace(ANNA, login_time_us=HOUR_US + 59_000_000), None),
    ],
)
def test_whose_vote_does_not_count_is_told_why(voter: Voter, problem: Problem | None) -> None:
    assert problem == _problem(STRICT, voter)


@pytest.mark.parametrize(
    ("hidden", "problem"),
    [
        ("/memo", None),
        ("/toto", None),
        ("/to", Problem.MATERIAL_PATH_HIDDEN),
        ("/to/name", Problem.MATERIAL_PATH_HIDDEN),
        ("/lines", Problem.MATERIAL_PATH_HIDDEN),
        ("/lines/0/iban", Problem.MATERIAL_PATH_HIDDEN),
        ("/*/0/iban", Problem.MATERIAL_PATH_HIDDEN),
        ("/lines/*/sum", None),
        ("", Problem.MATERIAL_PATH_HIDDEN),
    ],
)
def test_who_cannot_see_what_matters_cannot_approve_it(hidden: str, problem: Problem | None) -> None:
    assert problem == _problem(STRICT, ANNA, sensitive=(hidden,))
    assert _problem(STRICT, ANNA, sensitive=(hidden,), sees=True) is None


def test_a_requester_who_may_approve_is_asked_all_the_rest() -> None:
    terms = replace(STRICT, requester_may_approve=True)
    assert _problem(terms, replace(ANNA, subject="ben")) is None
    assert Problem.NOT_SELECTED == _problem(terms, replace(ANNA, subject="ben", roles=()))


def _problem(
    terms: Terms, voter: Voter, *, sensitive: tuple[str, ...] = (), sees: bool = False
) -> Problem | None:
    return eligible(
        terms,
        voter,
        requesters=("ben", "agent"),
        now_us=HOUR_US,
        sees_sensitive=sees,
        sensitive_paths=sensitive,
    )


def test_another_value_anywhere_is_another_digest() -> None:
    bound: dict[str, Any] = {
        "tenant": "acme",
        "capability": "payments.refund",
        "version": "1",
        "contract_digest": "c",
        "input_digest": "i",
        "requester": {"subject": "ben", "roles": ["x"]},
        "verdict_digest": "v",
    }
    digest = binding_digest(**bound)
    for member in bound:
        changed = {**bound, member: "another"}
        assert digest != binding_digest(**changed)
    assert digest == binding_digest(**dict(reversed(bound.items())))


def test_every_evidence_is_a_word_of_the_text_form() -> None:
    assert frozenset(Evidence) == parse_terms("1 of role:a; evidence=reason,ticket,attachment").evidence
