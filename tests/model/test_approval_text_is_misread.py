import pytest
from hypothesis import given, settings

from placet_server.model.approval import Escalation, Evidence, Quorum, Selector, Terms, all_of, any_of
from placet_server.model.approval_bounds import is_too_large, read_terms, terms_problems
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import format_terms, parse_selector, parse_terms
from tests.model.approval_strategies import ANY_TERMS

WHOLE = (
    "2 of role:finance,group:cfo,user:anna and (1 of role:legal or 1 of role:ceo); ttl=4h; evidence=reason,ticket; "
    "login=mfa|hwk; login_age=10m; escalate=role:head after 1h; requester=may; material=/amount,/to"
)


def _role(name: str) -> Selector:
    return Selector(roles=frozenset({name}))


def test_the_whole_form_says_what_it_looks_like() -> None:
    who = Selector(subjects=frozenset({"anna"}), roles=frozenset({"finance"}), groups=frozenset({"cfo"}))
    assert Terms(
        rule=all_of((Quorum(2, who), any_of((Quorum(1, _role("legal")), Quorum(1, _role("ceo")))))),
        requester_may_approve=True,
        evidence=frozenset({Evidence.REASON, Evidence.TICKET}),
        login_strengths=frozenset({"mfa", "hwk"}),
        login_age_seconds_max=600,
        ttl_seconds=4 * 3600,
        escalation=Escalation(after_seconds=3600, to=_role("head")),
        material_paths=frozenset({"/amount", "/to"}),
    ) == parse_terms(WHOLE)


@settings(max_examples=60, deadline=None)
@given(ANY_TERMS)
def test_what_is_written_is_read_back_equal(terms: Terms) -> None:
    assert terms == parse_terms(format_terms(terms))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1 of role:b", "1 of role:b; ttl=1d"),
        (" 1 of role:b , role:a;ttl=90m", "1 of role:a,role:b; ttl=90m"),
        ('((1 of user:"x y"))', '1 of user:"x y"; ttl=1d'),
        (
            "2 of role:a and (1 of role:b and 1 of role:c)",
            "1 of role:b and 1 of role:c and 2 of role:a; ttl=1d",
        ),
        ("1 of role:a or 1 of role:a", "1 of role:a; ttl=1d"),
        ("1 of role:a; login=", "1 of role:a; ttl=1d; login="),
        ('1 of role:"plain"; ttl=3600s', "1 of role:plain; ttl=1h"),
    ],
)
def test_equal_terms_have_one_text(text: str, canonical: str) -> None:
    assert canonical == format_terms(parse_terms(text))


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "say how many of whom"),
        ("role:finance", 0, "say how many of whom"),
        ("0 of role:a", 0, "say how many of whom"),
        ("two of role:a", 0, "say how many of whom"),
        ("2 role:a", 2, "say 'of' and whom"),
        ("2 of finance", 5, "whom is role:…"),
        ("2 of team:finance", 5, "whom is role:…"),
        ("2 of role: finance", 11, "a name after the colon"),
        ('2 of role:""', 10, "a string that is empty"),
        ("2 of role:a,", 12, "whom is role:…"),
        ("1 of role:a and 1 of role:b or 1 of role:c", 28, "'and' beside 'or'"),
        ("(1 of role:a", 12, "say 'and', 'or' or ')'"),
        ("1 of role:a)", 11, "say 'and', 'or', ';'"),
        ("1 of role:a ttl=4h", 12, "say 'and', 'or', ';'"),
        ("1 of role:a; ttl 4h", 17, "say ttl=…"),
        ("1 of role:a; ttl=4", 17, "a span is a number with"),
        ("1 of role:a; ttl=4h; ttl=5h", 21, "ttl is said twice"),
        ("1 of role:a; quorum=4", 13, "an option is one of ttl, evidence"),
        ("1 of role:a;", 12, "an option is one of"),
        ("1 of role:a; evidence=REASON", 22, "evidence is reason, ticket, attachment"),
        ("1 of role:a; requester=must", 23, "say requester=may"),
        ("1 of role:a; escalate=role:b", 28, "say 'after' and a span"),
        ('1 of role:"a', 10, "a string that does not end"),
        ('1 of role:"\\q"', 10, "not a string as JSON has them"),
        ('1 of role:"\\u202e"', 10, "not of printable characters"),
        ("1 of role:\u202ea", 5, "a word with a character that is not printable"),
        ("(" * 20 + "1 of role:a" + ")" * 20, 16, "more than 16 parentheses"),
        ("x" * 70000, 0, "longer than 65536"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, position: int, problem: str) -> None:
    with pytest.raises(TermsRefused) as refused:
        parse_terms(text)
    assert problem in refused.value.problem
    assert position == refused.value.position
    assert len(str(refused.value)) < 300


def test_a_selector_stands_alone() -> None:
    assert _role("a") == parse_selector("role:a")
    with pytest.raises(TermsRefused, match="the text ends here"):
        parse_selector("role:a after 1h")


MANY = " and ".join(f"1 of role:r{number}" for number in range(17))
DEEP = "1 of role:a and (1 of role:b or (1 of role:c and (1 of role:d or 1 of role:e)))"


@pytest.mark.parametrize(
    ("text", "member", "code"),
    [
        (MANY, "rule", "approval_rule_too_large"),
        (DEEP, "rule", "approval_rule_too_deep"),
        ("17 of role:a", "rule", "approval_count_range"),
        ("2 of user:anna", "rule", "approval_never_satisfied"),
        ("1 of " + ",".join(f"role:{n}" for n in range(33)), "rule", "selector_size"),
        ("1 of role:" + "x" * 129, "rule", "selector_name"),
        ("1 of role:a; ttl=366d", "ttl", "approval_ttl_range"),
        ("1 of role:a; login_age=31d", "login_age_max", "login_age_range"),
        ("1 of role:a; login=", "login_strengths", "login_strengths_size"),
        ("1 of role:a; login=" + "x" * 129, "login_strengths", "login_strength_name"),
        ("1 of role:a; ttl=1h; escalate=role:b after 1h", "escalation.after", "escalation_range"),
        ("1 of role:a; escalate=role:" + "x" * 129 + " after 1h", "escalation.to", "selector_name"),
        ("1 of role:a; material=amount", "material_paths", "material_path_malformed"),
        (
            "1 of role:a; material=" + ",".join(f"/{n}" for n in range(33)),
            "material_paths",
            "material_paths_too_many",
        ),
    ],
)
def test_what_may_not_be_declared_is_told_by_its_member(text: str, member: str, code: str) -> None:
    assert [(member, code)] == [(found.member, found.code) for found in terms_problems(parse_terms(text))]
    with pytest.raises(TermsRefused):
        read_terms(text)


def test_what_may_be_declared_has_no_problem() -> None:
    assert parse_terms(WHOLE) == read_terms(WHOLE)
    assert [] == list(terms_problems(parse_terms("3 of user:anna,role:finance")))
    assert not is_too_large(parse_terms(WHOLE))
