from itertools import combinations

import pytest
from hypothesis import given, settings

from placet_server.model.approval import Rule, Terms, Vote, join, satisfied
from placet_server.model.approval_change import loosened, weaker_by
from placet_server.model.approval_text import format_terms, parse_rule, parse_terms
from tests.model.approval_strategies import GROUPS, ROLES, SMALL_RULES, SMALL_TERMS, SUBJECTS, VOTES

FEW = settings(max_examples=40, deadline=None)


@FEW
@given(SMALL_RULES, SMALL_RULES)
def test_what_is_called_weaker_is_shown_by_votes(new: Rule, old: Rule) -> None:
    votes = weaker_by(new, old)
    if votes is not None:
        assert satisfied(new, votes)
        assert not satisfied(old, votes)


@FEW
@given(SMALL_RULES, SMALL_RULES, VOTES)
def test_what_is_not_called_weaker_lets_no_votes_pass(new: Rule, old: Rule, votes: list[Vote]) -> None:
    if weaker_by(new, old) is None:
        assert satisfied(old, votes) >= satisfied(new, votes)


ONE_MARK = [
    *(Vote(subject=subject) for subject in SUBJECTS),
    *(Vote(subject=f"{role} {n}", roles=(role,)) for role in ROLES for n in range(2)),
    *(Vote(subject=f"{a} and {b}", roles=(a, b)) for a, b in combinations(ROLES, 2)),
    *(Vote(subject=group, groups=(group,)) for group in GROUPS),
]


@settings(max_examples=15, deadline=None)
@given(SMALL_RULES, SMALL_RULES)
def test_no_three_people_tell_what_the_search_missed(new: Rule, old: Rule) -> None:
    if weaker_by(new, old) is None:
        for votes in combinations(ONE_MARK, 3):
            assert satisfied(old, votes) >= satisfied(new, votes)


@FEW
@given(SMALL_TERMS, SMALL_TERMS)
def test_joining_loosens_neither(a: Terms, b: Terms) -> None:
    assert [] == list(loosened(a, join(a, b)))


@pytest.mark.parametrize(
    ("new", "old", "is_weaker"),
    [
        ("1 of role:a", "1 of role:a", False),
        ("2 of role:a", "1 of role:a", False),
        ("1 of role:a", "2 of role:a", True),
        ("1 of role:a", "1 of role:a,role:b", False),
        ("1 of role:a,role:b", "1 of role:a", True),
        ("1 of role:a and 1 of role:b", "1 of role:a", False),
        ("1 of role:a or 1 of role:b", "1 of role:a", True),
        ("1 of role:a or 1 of role:b", "1 of role:a,role:b", False),
        # One person may have both roles.
        ("1 of role:a and 1 of role:b", "2 of role:a,role:b", True),
        # Two named ones are two.
        ("1 of user:x and 1 of user:y", "2 of user:x,user:y", False),
        ("2 of user:x,user:y", "1 of user:x and 1 of user:y", False),
        ("2 of user:x,user:y,user:z", "1 of user:x", True),
        ("3 of user:x,user:y,user:z", "1 of user:x", False),
        ("3 of user:x,user:y", "1 of user:z", False),
        (
            "1 of role:a and (1 of role:b or 1 of role:c)",
            "(1 of role:a and 1 of role:b) or (1 of role:a and 1 of role:c)",
            False,
        ),
    ],
)
def test_a_rule_is_weaker_where_some_votes_tell_it(new: str, old: str, is_weaker: bool) -> None:
    assert is_weaker == (weaker_by(parse_rule(new), parse_rule(old)) is not None)


STRICT = "2 of role:a; ttl=1h; evidence=reason; login=mfa; login_age=5m; material=/to"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("2 of", "1 of"), "approval_rule_loosened"),
        (("ttl=1h", "ttl=2h"), "approval_ttl_raised"),
        (("evidence=reason", "evidence=ticket"), "approval_evidence_removed"),
        (("login=mfa", "login=mfa|pwd"), "approval_login_weaker"),
        (("login=mfa; ", ""), "approval_login_weaker"),
        (("login_age=5m", "login_age=6m"), "approval_login_older"),
        (("login_age=5m; ", ""), "approval_login_older"),
        (("; material=/to", ""), "approval_material_paths_removed"),
        (("material", "requester=may; material"), "approval_requester_admitted"),
    ],
)
def test_each_thing_taken_back_is_told_alone(change: tuple[str, str], code: str) -> None:
    old, new = parse_terms(STRICT), parse_terms(STRICT.replace(*change))
    assert [code] == [found.code for found in loosened(old, new)]
    tightened = [] if code != "approval_evidence_removed" else [code]
    assert tightened == [found.code for found in loosened(new, old)]


def test_rules_too_large_to_compare_count_as_loosened() -> None:
    large = parse_terms(" and ".join(f"(2 of role:a{n} or 2 of role:b{n})" for n in range(8)))
    assert [] == list(loosened(large, large))
    assert [] == list(loosened(large, join(large, parse_terms("1 of role:c"))))
    stricter = parse_terms(format_terms(large).replace("2 of role:a0", "3 of role:a0"))
    found = list(loosened(large, stricter))
    assert ["approval_rule_loosened"] == [loosening.code for loosening in found]
    assert "too large" in found[0].message
