"""What somebody has to judge is shown as it is: nothing made up, nothing left out without a word."""

from __future__ import annotations

import pytest

from placet_server.cli.input_tree import LINES_MAX, text_of, tree_lines
from placet_server.cli.lookalike import mixed_writing, not_ascii
from placet_server.cli.terms import condition_words, rule_words, span_words

FINANCE = {"count": 2, "who": {"roles": ["finance"], "groups": [], "subjects": ["anna"]}}
LEGAL = {"count": 1, "who": {"roles": [], "groups": ["legal"], "subjects": []}}
CYRILLIC_A = "\u0430"


def test_members_that_the_contract_names_come_first_and_what_is_hidden_is_said_to_be() -> None:
    value = {"amount": "1", "card": None, "lines": [{"n": 1}, {}], "order": True}
    shown = tree_lines(value, first=("order", "amount", "gone"), hidden=("/card", "/lines/0/n"))
    assert [
        "order   true",
        'amount  "1"',
        "card    (HIDDEN FROM YOU)",
        "lines",
        "  [0]",
        "    n  (HIDDEN FROM YOU)",
        "  [1]  {}",
    ] == shown
    assert ["(HIDDEN FROM YOU)"] == tree_lines(None, hidden=("",))
    assert ["null"] == tree_lines(None)


def test_no_name_of_a_member_looks_like_another_line() -> None:
    (line,) = tree_lines({'a\namount  "1"\u202e': "x"})
    assert line.startswith('"a\\namount')
    assert "\u202e" not in line
    assert "\\u202e" in line


def test_what_is_cut_says_how_long_it_is() -> None:
    shown = text_of("a" * 5000 + "z")
    assert all(part in shown for part in ("CUT: 5001 characters", "SHA-256", 'az"'))
    assert len(shown) < 600
    many = tree_lines(list(range(1000)))
    assert (LINES_MAX + 1, "… and 800 more lines, NOT SHOWN HERE") == (len(many), many[-1])


@pytest.mark.parametrize(
    ("text", "is_mixed"),
    [
        ("anna@example.com", False),
        (f"{CYRILLIC_A}nna", True),
        ("Müller & Søn", False),
        ("Анна", False),
        ("東京 Tower", False),
    ],
)
def test_letters_of_other_writings_amid_latin_ones_are_pointed_out(text: str, is_mixed: bool) -> None:
    assert is_mixed == bool(mixed_writing(text))


def test_a_name_that_is_not_ascii_is_pointed_out() -> None:
    assert "" == not_ascii("payments.refund")
    assert "U+0430 CYRILLIC SMALL LETTER A" == not_ascii(f"p{CYRILLIC_A}yments.refund")


def test_terms_in_words() -> None:
    both = {
        "all_of": {
            "rules": [{"quorum": FINANCE}, {"any_of": {"rules": [{"quorum": LEGAL}, {"quorum": FINANCE}]}}]
        }
    }
    said = "2 people of role finance or anna"
    assert f"{said} and (1 person of group legal or {said})" == rule_words(both)
    terms = {
        "evidence": ["REASON", "TICKET"],
        "login_strengths": ["mfa"],
        "login_age_max": 600.0,
        "material_paths": ["/amount"],
        "requester_may_approve": False,
    }
    assert [
        "each yes with a reason and a ticket",
        "logged in by mfa",
        "logged in at most 10 min ago",
        "with clear sight of /amount",
        "whoever asks is none of them",
    ] == condition_words(terms)
    assert ["3 h 12 min", "1 d", "59 s", "0 s"] == [span_words(n) for n in (11_550, 86_460, 59.9, -1)]
