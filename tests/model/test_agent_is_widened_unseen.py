"""Whoever admits another version of an agent is told of everything that it may do more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placet_server.model.agent import (
    AgentSpec,
    DelegateChoice,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
)
from placet_server.model.agent_change import widened
from placet_server.model.usage import Budget

OLD = AgentSpec(
    model="fast",
    instructions="Help.",
    tools=(
        ToolChoice(name="orders.*"),
        ToolChoice(name="orders.refund", version="2", scopes=frozenset({"a", "b"})),
        ToolChoice(name="mail.send", scopes=frozenset()),
    ),
    delegates=(
        DelegateChoice(agent="support.writer", version="1", budget=Budget(turns=3), scopes=frozenset({"a"})),
    ),
    budget=Budget(turns=10, tokens=1000),
)
ORDERS, REFUND, SEND = OLD.tools
(WRITER,) = OLD.delegates


def told(new: AgentSpec, old: AgentSpec = OLD) -> list[tuple[str, str]]:
    return [(each.member, each.code) for each in widened(old, new)]


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        replace(
            OLD, instructions="Help more.", memory=Memory(keep_turns=2), settings=ModelSettings(top_p=0.5)
        ),
        replace(OLD, tools=(), delegates=(), budget=Budget(turns=9, tokens=1, calls=1)),
        replace(OLD, tools=(*OLD.tools, ToolChoice(name="orders.find"), ToolChoice(name="orders.eu.*"))),
        replace(OLD, tools=(SEND, REFUND, ORDERS)),
        replace(OLD, tools=(replace(REFUND, scopes=frozenset({"a"})),)),
        replace(OLD, delegates=(replace(WRITER, scopes=frozenset(), budget=Budget(turns=2)),)),
    ],
)
def test_less_or_the_same_is_no_widening(new: AgentSpec) -> None:
    assert [] == told(new)


@pytest.mark.parametrize(
    ("new", "member", "code"),
    [
        (replace(OLD, model="other"), "model", "model_changed"),
        (replace(OLD, credential="prod"), "credential", "model_credential_changed"),
        (replace(OLD, tools=(*OLD.tools, ToolChoice(name="mail.*"))), "tools[3].name", "tools_added"),
        (replace(OLD, tools=(ToolChoice(name="orders"),)), "tools[0].name", "tools_added"),
        (replace(OLD, tools=(replace(REFUND, version=""),)), "tools[0].version", "tool_version_changed"),
        (replace(OLD, tools=(replace(REFUND, scopes=None),)), "tools[0].scopes", "tool_scopes_widened"),
        (
            replace(OLD, tools=(replace(REFUND, scopes=frozenset({"*"})),)),
            "tools[0].scopes",
            "tool_scopes_widened",
        ),
        (
            replace(OLD, tools=(replace(SEND, scopes=frozenset({"a"})),)),
            "tools[0].scopes",
            "tool_scopes_widened",
        ),
        # What held one tool is gone, and the pattern takes its place.
        (replace(OLD, tools=(ORDERS, SEND)), "tools[0].scopes", "tool_scopes_widened"),
        (
            replace(OLD, delegates=(WRITER, DelegateChoice(agent="support.boss"))),
            "delegates[1].agent",
            "delegates_added",
        ),
        (
            replace(OLD, delegates=(replace(WRITER, version="2"),)),
            "delegates[0].version",
            "delegate_version_changed",
        ),
        (
            replace(OLD, delegates=(replace(WRITER, scopes=None),)),
            "delegates[0].scopes",
            "delegate_scopes_widened",
        ),
        (
            replace(OLD, delegates=(replace(WRITER, budget=Budget()),)),
            "delegates[0].budget.turns",
            "budget_raised",
        ),
        (replace(OLD, budget=Budget(turns=11, tokens=1000)), "budget.turns", "budget_raised"),
        (replace(OLD, budget=Budget(turns=10)), "budget.tokens", "budget_raised"),
        (
            replace(OLD, provider_retry=ProviderRetry(tries_max=7)),
            "provider_retry.tries_max",
            "provider_tries_raised",
        ),
    ],
)
def test_more_is_told_by_its_place(new: AgentSpec, member: str, code: str) -> None:
    assert (member, code) in told(new)


def test_a_tool_that_may_be_called_with_every_scope_cannot_get_more() -> None:
    every = replace(OLD, tools=(ToolChoice(name="a.b", scopes=frozenset({"*"})),))
    assert [] == told(replace(OLD, tools=(ToolChoice(name="a.b"),)), every)
