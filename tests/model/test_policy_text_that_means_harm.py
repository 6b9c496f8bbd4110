"""Cedar text: everything wrong with it at once, never the end of the process, and digests that mean what is said."""

import asyncio

import pytest

from placet_server.model.policy import CEDAR_BYTES_MAX, POLICIES_MAX
from placet_server.model.policy_text import Policy, parse_policies

HEAD = "permit (principal, action, resource) when { "


def problems_of(cedar: str) -> list[tuple[str, str]]:
    return [(problem.path, problem.code) for problem in parse_policies(cedar).problems]


def policy_of(cedar: str) -> Policy:
    parsed = parse_policies(cedar)
    assert () == parsed.problems
    (policy,) = parsed.policies
    return policy


def test_every_problem_is_told_at_once() -> None:
    cedar = """
        permit (principal, action, resource) when { context.input.amount > };
        @aproval("1 of role:boss") permit (principal, action, resource);
        permit (principal == ?principal, action, resource);
        @id("twice") permit (principal, action, resource);
        @id("twice") forbid (principal, action, resource);
        @id("no name") permit (principal, action, resource);
        @approval("1 of role:boss") forbid (principal, action, resource);
        permit (principal, action, resource)
    """
    assert [
        ("policies[0]", "cedar_malformed"),
        ("policies[1]", "annotation_unknown"),
        ("policies[2]", "template_unsupported"),
        ("policies[5]", "id_malformed"),
        ("policies[6]", "approval_of_forbid"),
        ("policies[7]", "cedar_malformed"),
    ] == [each for each in problems_of(cedar) if each[1] != "id_duplicate"]
    assert "id_duplicate" in [code for _, code in problems_of(cedar)]


# Each of these ends a process that hands it to the engine unseen.
DEEP = {
    "parentheses": HEAD + "(" * 5000 + "true" + ")" * 5000 + " };",
    "closed before they open": HEAD + ")" * 5000 + "(" * 5000 + "true };",
    "sets": HEAD + "[" * 5000 + "]" * 5000 + ".contains(2) };",
    "records": HEAD + "{a:" * 5000 + "1" + "}" * 5000 + " == 2 };",
    "and": HEAD + " && ".join(["true"] * 20_000) + " };",
    "or": HEAD + " || ".join(["true"] * 20_000) + " };",
    "sums": HEAD + " + ".join(["1"] * 20_000) + " == 1 };",
    "attributes": HEAD + "context" + ".a" * 20_000 + " == 1 };",
    "indexes": HEAD + "context" + '["a"]' * 20_000 + " == 1 };",
    "has": HEAD + "context has a" + ".a" * 20_000 + " };",
    "methods": HEAD + "[1]" + ".contains(1)" * 9000 + " };",
    "if": HEAD + "if true then true else " * 9000 + "true };",
    "behind a comment that a carriage return ends": HEAD + "//\r" + "true && " * 20_000 + "true };",
    "in a string without an end": HEAD + '"' + "true && " * 20_000 + "true };",
}


@pytest.mark.parametrize("cedar", DEEP.values(), ids=DEEP.keys())
def test_text_that_nests_without_end_is_refused_and_not_read(cedar: str) -> None:
    assert ("policies[0]", "policy_too_deep") == problems_of(cedar)[0]


def test_what_is_too_much_is_refused_by_its_size_alone() -> None:
    one = "permit (principal, action, resource);"
    users = ",".join(f'"user{number}"' for number in range(3000))
    assert [("cedar", "cedar_too_large")] == problems_of("//" + "x" * CEDAR_BYTES_MAX)
    assert [("cedar", "policies_too_many")] == problems_of(one * (POLICIES_MAX + 1))
    assert [("policies[0]", "policy_too_large")] == problems_of(
        HEAD + f"[{users}].contains(principal.tenant) }};"
    )
    deep_but_legal = HEAD + " && ".join(["true"] * 150) + " };"
    assert [("policies[0]", "cedar_malformed")] == problems_of(deep_but_legal)


async def test_a_thousand_policies_are_read_beside_the_event_loop() -> None:
    cedar = "\n".join(f'@id("p{n}") {HEAD} resource.risk < {n} }};' for n in range(POLICIES_MAX))
    reading = asyncio.ensure_future(asyncio.to_thread(parse_policies, cedar))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert POLICIES_MAX == len((await reading).policies)
    assert turns > 10


def test_a_comment_a_description_and_another_place_change_no_digest() -> None:
    plain = policy_of('@id("a") permit (principal, action, resource) when { resource.risk < 3 };')
    told = policy_of(
        '// why\n@id("a") @description("why") permit(principal,action,resource) when {resource.risk<3};'
    )
    other = policy_of('@id("a") permit (principal, action, resource) when { resource.risk < 4 };')
    beside = parse_policies("forbid (principal, action, resource);" + plain.text).policies[1]
    assert plain.digest == told.digest == beside.digest != other.digest
    assert beside.name == "a"


def test_a_policy_without_a_name_is_called_by_what_it_says() -> None:
    bare = policy_of("permit (principal, action, resource);")
    assert f"unnamed-{bare.digest[:12]}" == bare.name


@pytest.mark.parametrize(
    ("condition", "context", "identity"),
    [
        ("resource.risk < 3", False, False),
        ('principal.roles.contains("boss") && principal has tenant', False, False),
        ('principal in Role::"boss" || principal in [Group::"a", Role::"b"]', False, False),
        ("principal is User", False, False),
        ('principal == User::"anna"', False, True),
        ('principal in User::"anna"', False, True),
        ('principal is User in Group::"g"', False, False),
        ('[User::"anna"].contains(principal)', False, True),
        ("{a: principal}.a is User", False, True),
        ("context.delegation_depth == 0", True, False),
        ("if resource.risk > 1 then context.input has amount else true", True, False),
        ('context == {"a": 1}', True, False),
    ],
)
def test_what_a_decision_depends_on_is_known(condition: str, context: bool, identity: bool) -> None:
    reads = policy_of(HEAD + condition + " };").reads
    assert (context, identity) == (reads.context, reads.identity)


def test_a_head_that_names_somebody_makes_a_decision_personal() -> None:
    assert policy_of('permit (principal == User::"anna", action, resource);').reads.identity
    assert not policy_of('permit (principal in Role::"boss", action, resource);').reads.identity
