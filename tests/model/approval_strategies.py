"""Approval terms and votes, made by dice."""

from hypothesis import strategies as st

from placet_server.model.approval import (
    Escalation,
    Evidence,
    Quorum,
    Rule,
    Selector,
    Terms,
    Vote,
    all_of,
    any_of,
)

SUBJECTS = ("anna", "ben", "cleo")
ROLES = ("finance", "legal", "head")
GROUPS = ("cfo", "board")

_AWKWARD = st.text("aZ09 ()\",;=|:\\/ÄΩ漢🙂~*'", min_size=1, max_size=8)
_NAMES = st.sampled_from(("and", "of", "a:b", "x y", 'a"b', "a,b", "Ä;=|", "\\")) | _AWKWARD


def _selectors(
    subjects: st.SearchStrategy[str], roles: st.SearchStrategy[str], groups: st.SearchStrategy[str]
) -> st.SearchStrategy[Selector]:
    made = st.builds(
        Selector,
        subjects=st.frozensets(subjects, max_size=2),
        roles=st.frozensets(roles, max_size=2),
        groups=st.frozensets(groups, max_size=1),
    )
    return made.filter(lambda who: who != Selector())


def _rules(who: st.SearchStrategy[Selector]) -> st.SearchStrategy[Rule]:
    quorums: st.SearchStrategy[Rule] = st.builds(Quorum, st.integers(1, 3), who)
    return st.recursive(
        quorums,
        lambda rules: (
            st.lists(rules, min_size=1, max_size=3).map(all_of)
            | st.lists(rules, min_size=1, max_size=3).map(any_of)
        ),
        max_leaves=4,
    )


def _terms(rule: st.SearchStrategy[Rule], names: st.SearchStrategy[str]) -> st.SearchStrategy[Terms]:
    seconds = st.integers(1, 10**6)
    return st.builds(
        Terms,
        rule=rule,
        requester_may_approve=st.booleans(),
        evidence=st.frozensets(st.sampled_from(Evidence)),
        login_strengths=st.none() | st.frozensets(names, max_size=2),
        login_age_seconds_max=st.none() | seconds,
        ttl_seconds=seconds,
        escalation=st.none()
        | st.builds(Escalation, after_seconds=seconds, to=_selectors(names, names, names)),
        material_paths=st.frozensets(names.map(lambda name: f"/{name}"), max_size=2),
    )


SMALL_RULES = _rules(_selectors(st.sampled_from(SUBJECTS), st.sampled_from(ROLES), st.sampled_from(GROUPS)))
SMALL_TERMS = _terms(SMALL_RULES, st.sampled_from(ROLES))
ANY_TERMS = _terms(_rules(_selectors(_NAMES, _NAMES, _NAMES)), _NAMES)
VOTES = st.lists(
    st.builds(
        Vote,
        subject=st.sampled_from((*SUBJECTS, "dora", "emil")),
        roles=st.frozensets(st.sampled_from(ROLES)),
        groups=st.frozensets(st.sampled_from(GROUPS)),
        approves=st.booleans(),
    ),
    max_size=6,
)
