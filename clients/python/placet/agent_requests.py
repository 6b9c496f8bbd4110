"""From what an author says of an agent to its capability on the wire. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from placet.agent import (
    Agent,
    Budget,
    DelegateChoice,
    InlineAgent,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
)
from placet.contract import duration_of, words_of
from placet.failure import DeclarationError
from placet.v1 import agent_pb2 as pb


def spec_message(
    what: str,
    *,
    model: str,
    instructions: str,
    tools: Sequence[ToolChoice | str],
    delegates: Sequence[DelegateChoice | Agent | str],
    budget: Budget | None,
    memory: Memory | None,
    settings: ModelSettings | None,
    provider_retry: ProviderRetry | None,
    output_repairs_max: int | None,
    credential: str,
) -> pb.AgentSpec:
    """Raises DeclarationError, naming `what`."""
    for option, values in (("tools", tools), ("delegates", delegates)):
        if isinstance(values, str | ToolChoice | DelegateChoice | Agent):
            raise DeclarationError(f"{what}: {option} is a list; write {option}=[…]")
    try:
        return pb.AgentSpec(
            model=model,
            instructions=instructions,
            tools=[_tool_message(each, what) for each in tools],
            delegates=[_delegate_message(each, what) for each in delegates],
            budget=None if budget is None else budget_message(budget, what),
            memory=None
            if memory is None
            else pb.Memory(compact_at_tokens=memory.compact_at_tokens, keep_turns=memory.keep_turns),
            settings=None if settings is None else _settings_message(settings, what),
            output_repairs_max=output_repairs_max,
            provider_retry=None if provider_retry is None else _retry_message(provider_retry, what),
            credential=credential,
        )
    except (TypeError, ValueError) as error:
        # A number beyond its field, or of another type: protobuf names it.
        raise DeclarationError(f"{what}: {error}") from None


def budget_message(budget: Budget, what: str) -> pb.Budget:
    """Raises DeclarationError for a time that is none, TypeError and ValueError as protobuf does."""
    return pb.Budget(
        turns=budget.turns,
        calls=budget.calls,
        equal_calls=budget.equal_calls,
        tokens=budget.tokens,
        cost_micros=budget.cost_micros,
        active_time=duration_of(budget.active_time, "active_time", what),
    )


def inline_message(agent: InlineAgent) -> pb.InlineAgent:
    """Raises TypeError and ValueError as protobuf does."""
    if isinstance(agent.tools, str) or isinstance(agent.delegates, str):
        raise TypeError("tools and delegates are lists of names")
    return pb.InlineAgent(
        model=agent.model,
        instructions=agent.instructions,
        tools=agent.tools,
        delegates=agent.delegates,
        max_tokens=agent.max_tokens,
    )


def _tool_message(choice: ToolChoice | str, what: str) -> pb.ToolChoice:
    tool = ToolChoice(choice) if isinstance(choice, str) else choice
    if not isinstance(tool, ToolChoice):
        raise DeclarationError(f"{what}: {choice!r} is no tool; say its name, or placet.ToolChoice")
    scopes = None if tool.scopes is None else words_of(tool.scopes, "scopes", what)
    return pb.ToolChoice(name=tool.name, version=tool.version, scopes=scopes, no_scopes=scopes == [])


def _delegate_message(choice: DelegateChoice | Agent | str, what: str) -> pb.DelegateChoice:
    delegate = DelegateChoice(choice) if isinstance(choice, str | Agent) else choice
    if not isinstance(delegate, DelegateChoice):
        raise DeclarationError(f"{what}: {choice!r} is no agent; say its name, or placet.DelegateChoice")
    agent, scopes = delegate.agent, delegate.scopes
    given = None if scopes is None else words_of(scopes, "scopes", what)
    return pb.DelegateChoice(
        agent=agent.name if isinstance(agent, Agent) else agent,
        version=delegate.version,
        description=delegate.description,
        budget=None if delegate.budget is None else budget_message(delegate.budget, what),
        scopes=given,
        no_scopes=given == [],
    )


def _settings_message(settings: ModelSettings, what: str) -> pb.ModelSettings:
    return pb.ModelSettings(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        reasoning_effort=settings.reasoning_effort,
        parallel_tool_calls=settings.parallel_tool_calls,
        request_timeout=duration_of(settings.request_timeout, "request_timeout", what),
    )


def _retry_message(retry: ProviderRetry, what: str) -> pb.ProviderRetry:
    return pb.ProviderRetry(
        tries_max=retry.tries_max, delay_max=duration_of(retry.delay_max, "delay_max", what)
    )
