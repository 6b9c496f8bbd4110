"""The recipes of the policy cookbook are admitted as they stand, and decide as their headings say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from placet.app import App
from placet_server.core.admission.policy_check import check_policy_set
from placet_server.core.decision.policy_rules import CompiledSet, Rulebook
from placet_server.core.decision.policy_slice import Question
from placet_server.core.governance.governor import Governor
from placet_server.core.governance.tools import governing_app
from placet_server.model.caller import Caller, CallerKind, Delegate
from placet_server.model.policy import PolicySet, PolicyVerdict
from placet_server.model.policy_default import DEFAULT_POLICY_COUNT, DEFAULT_SET
from placet_server.model.policy_schema import Offered
from placet_server.rpc.convert.capability import manifest_of
from tests.toolchain import ROOT

BLOCK = re.compile(r"^## (.+?)\n.*?```cedar\n(.*?)```", re.MULTILINE | re.DOTALL)
RECIPES = dict(BLOCK.findall((ROOT / "docs/policy-cookbook.md").read_text()))

app = App("cookbook")


@app.tool("payments.refund", "idempotent", risk="high", hazards=["financial"], no_approval="policy asks")
async def refund(amount: float, currency: str, to: str | None = None) -> None: ...


@app.tool("customers.find", "read")
async def find() -> None: ...


@app.tool("customers.delete", "unsafe", hazards=["delete"], no_approval="policy asks")
async def delete(customer: str) -> None: ...


CAPABILITIES = {each.name: each for each in manifest_of(app.manifest()).capabilities}
BUILT_IN = manifest_of(governing_app(Governor()).manifest()).capabilities
ANNA = Caller(tenant="acme", subject="anna")
CLERK = replace(ANNA, roles=("clerk",))
AGENT = Caller(tenant="acme", subject="bot", kind=CallerKind.AGENT)
FAR = replace(ANNA, delegation=tuple(Delegate(subject=f"s{n}") for n in range(4)))
OPERATIONS = replace(ANNA, groups=("operations",))
FIND: tuple[str, dict[str, Any]] = ("customers.find", {})
DELETE = ("customers.delete", {"customer": "7"})
REHEARSAL = {"labels": {"purpose": "rehearsal"}}


def pay(amount: float, currency: str = "EUR", **more: str) -> tuple[str, dict[str, Any]]:
    return "payments.refund", {"amount": amount, "currency": currency, **more}


async def decide(cedar: str, caller: Caller, call: tuple[str, Any], **more: Any) -> PolicyVerdict:
    name, value = call
    offered = Offered(capability=CAPABILITIES[name], manifest="cookbook")
    question = Question(caller, offered, value, more.get("labels", {}), more.get("parent", ""))
    book = Rulebook(None, CompiledSet("acme", 1, PolicySet(name="recipe", cedar=cedar)))
    return (await book.decide(question)).verdict


CASES: list[tuple[str, Caller, tuple[str, Any], dict[str, Any], str]] = [
    ("A starter", ANNA, FIND, {}, "allowed"),
    ("A starter", ANNA, pay(1), {}, "not_permitted"),
    ("A starter", CLERK, pay(1), {}, "allowed"),
    ("A starter", CLERK, DELETE, {}, "2 of group:data-team; ttl=1d; evidence=reason,ticket"),
    ("Small refunds", ANNA, pay(100), {}, "allowed"),
    ("Small refunds", ANNA, pay(100.0001), {}, "1 of role:finance; ttl=4h"),
    (
        "Small refunds",
        ANNA,
        pay(10001),
        {},
        "1 of role:finance and 2 of role:head-of-finance; ttl=4h; login=mfa; material=/amount",
    ),
    ("Small refunds", ANNA, pay(100.00001), {}, "not_readable"),
    ("Some currencies", ANNA, pay(1), {}, "allowed"),
    ("Some currencies", ANNA, pay(1, "USD"), {}, "forbidden"),
    ("Some currencies", ANNA, pay(1, to="a@example.com"), {}, "allowed"),
    ("Some currencies", ANNA, pay(1, to="a@elsewhere.example"), {}, "forbidden"),
    ("Agents do less", ANNA, DELETE, {}, "allowed"),
    ("Agents do less", AGENT, FIND, {}, "allowed"),
    ("Agents do less", AGENT, DELETE, {}, "not_permitted"),
    ("Agents do less", AGENT, pay(1), {}, "1 of role:supervisor; ttl=1d"),
    ("Agents do less", FAR, FIND, {}, "forbidden"),
    ("Agents delete nothing", ANNA, DELETE, {}, "allowed"),
    ("Agents delete nothing", AGENT, DELETE, {}, "forbidden"),
    ("Agents delete nothing", AGENT, FIND, {}, "allowed"),
    ("Agents delete nothing", FAR, DELETE, {}, "forbidden"),
    ("Only as a step", ANNA, pay(1), {"parent": "orders.cancel"}, "allowed"),
    ("Only as a step", ANNA, pay(1), {"parent": "orders.other"}, "not_permitted"),
    ("Only as a step", ANNA, pay(1), {}, "not_permitted"),
    ("By label", OPERATIONS, pay(1), REHEARSAL, "allowed"),
    ("By label", OPERATIONS, pay(1), {}, "not_permitted"),
    ("By label", ANNA, pay(1), REHEARSAL, "not_permitted"),
    ("Nothing for the moment", ANNA, pay(1), {}, "forbidden"),
    ("Nothing for the moment", ANNA, FIND, {}, "allowed"),
]


@pytest.mark.parametrize(("recipe", "caller", "call", "more", "expected"), CASES)
async def test_a_recipe_decides_as_it_says(
    recipe: str, caller: Caller, call: tuple[str, Any], more: dict[str, Any], expected: str
) -> None:
    (cedar,) = [text for heading, text in RECIPES.items() if heading.startswith(recipe)]
    verdict = await decide(cedar, caller, call, **more)
    assert expected == (verdict.problem or verdict.approval or "allowed")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_may_be_admitted_as_it_stands_and_has_a_case(recipe: str) -> None:
    document = PolicySet(name="recipe", cedar=RECIPES[recipe])
    assert [] == check_policy_set(document, list(CAPABILITIES.values()))
    assert any(recipe.startswith(case[0]) for case in CASES)


def test_the_built_in_policies_are_shown_as_they_are() -> None:
    shown = re.search(r"```cedar\n(.*?)```", (ROOT / "docs/policy.md").read_text(), re.DOTALL)
    assert shown is not None
    assert DEFAULT_SET.cedar == shown[1]
    assert [] == check_policy_set(DEFAULT_SET, [*CAPABILITIES.values(), *BUILT_IN])
    assert DEFAULT_POLICY_COUNT == len(CompiledSet("", 0, DEFAULT_SET).policies)


def test_what_is_said_of_governing_may_be_admitted_as_it_stands() -> None:
    (shown,) = re.findall(r"```cedar\n(.*?)```", (ROOT / "docs/governance.md").read_text(), re.DOTALL)
    document = PolicySet(name="recipe", cedar=shown)
    assert [] == check_policy_set(document, [*CAPABILITIES.values(), *BUILT_IN])
