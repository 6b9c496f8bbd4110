"""Agents as they are declared, to model and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from placet.v1 import agent_pb2 as pb
from placet_server.model.agent import (
    DELAY_SECONDS_DEFAULT,
    KEEP_TURNS_DEFAULT,
    MAX_TOKENS_DEFAULT,
    OUTPUT_REPAIRS_DEFAULT,
    REQUEST_TIMEOUT_SECONDS_DEFAULT,
    TRIES_DEFAULT,
    AgentSpec,
    DelegateChoice,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
)
from placet_server.model.errors import FieldViolation
from placet_server.model.usage import Budget
from placet_server.rpc.convert.time import duration, seconds


def agent_violations(message: pb.AgentSpec, path: str) -> Iterator[FieldViolation]:
    """What the model has no words for."""
    places: list[tuple[str, pb.ToolChoice | pb.DelegateChoice]] = [
        *((f"tools[{index}]", each) for index, each in enumerate(message.tools)),
        *((f"delegates[{index}]", each) for index, each in enumerate(message.delegates)),
    ]
    for place, choice in places:
        if choice.no_scopes and choice.scopes:
            text = "it has these scopes, or none: leave one of them out"
            yield FieldViolation(field=f"{path}.{place}.no_scopes", rule="scopes_twice", description=text)


def agent_of(message: pb.AgentSpec) -> AgentSpec:
    """Unset members get their defaults. Raises MalformedRequest for a span that is none."""
    return AgentSpec(
        model=message.model,
        instructions=message.instructions,
        tools=tuple(
            ToolChoice(name=each.name, version=each.version, scopes=_scopes_of(each.scopes, each.no_scopes))
            for each in message.tools
        ),
        delegates=tuple(
            DelegateChoice(
                agent=each.agent,
                version=each.version,
                description=each.description,
                budget=budget_of(each.budget),
                scopes=_scopes_of(each.scopes, each.no_scopes),
            )
            for each in message.delegates
        ),
        budget=budget_of(message.budget),
        memory=Memory(
            compact_at_tokens=message.memory.compact_at_tokens,
            keep_turns=message.memory.keep_turns or KEEP_TURNS_DEFAULT,
        ),
        settings=_settings_of(message.settings),
        output_repairs_max=message.output_repairs_max
        if message.HasField("output_repairs_max")
        else OUTPUT_REPAIRS_DEFAULT,
        provider_retry=ProviderRetry(
            tries_max=message.provider_retry.tries_max or TRIES_DEFAULT,
            delay_seconds_max=seconds(message.provider_retry.delay_max) or DELAY_SECONDS_DEFAULT,
        ),
        credential=message.credential,
    )


def agent_message(spec: AgentSpec, *, with_instructions: bool = True) -> pb.AgentSpec:
    return pb.AgentSpec(
        model=spec.model,
        instructions=spec.instructions if with_instructions else "",
        tools=[
            pb.ToolChoice(
                name=each.name,
                version=each.version,
                scopes=sorted(each.scopes or ()),
                no_scopes=each.scopes == frozenset(),
            )
            for each in spec.tools
        ],
        delegates=[
            pb.DelegateChoice(
                agent=each.agent,
                version=each.version,
                description=each.description,
                budget=budget_message(each.budget),
                scopes=sorted(each.scopes or ()),
                no_scopes=each.scopes == frozenset(),
            )
            for each in spec.delegates
        ],
        budget=budget_message(spec.budget),
        memory=pb.Memory(compact_at_tokens=spec.memory.compact_at_tokens, keep_turns=spec.memory.keep_turns),
        settings=_settings_message(spec.settings),
        output_repairs_max=spec.output_repairs_max,
        provider_retry=pb.ProviderRetry(
            tries_max=spec.provider_retry.tries_max, delay_max=duration(spec.provider_retry.delay_seconds_max)
        ),
        credential=spec.credential,
    )


def budget_of(message: pb.Budget) -> Budget:
    return Budget(
        turns=message.turns,
        calls=message.calls,
        equal_calls=message.equal_calls,
        tokens=message.tokens,
        cost_micros=message.cost_micros,
        # A span that is hardly any is no missing one.
        active_ms=max(1, round(seconds(message.active_time) * 1000))
        if message.HasField("active_time")
        else 0,
    )


def budget_message(budget: Budget) -> pb.Budget:
    return pb.Budget(
        turns=budget.turns,
        calls=budget.calls,
        equal_calls=budget.equal_calls,
        tokens=budget.tokens,
        cost_micros=budget.cost_micros,
        active_time=duration(budget.active_ms / 1000) if budget.active_ms else None,
    )


def _settings_of(message: pb.ModelSettings) -> ModelSettings:
    settings = ModelSettings(
        max_tokens=message.max_tokens or MAX_TOKENS_DEFAULT,
        reasoning_effort=message.reasoning_effort,
        request_timeout_seconds=seconds(message.request_timeout) or REQUEST_TIMEOUT_SECONDS_DEFAULT,
    )
    if message.HasField("temperature"):
        settings = replace(settings, temperature=message.temperature)
    if message.HasField("top_p"):
        settings = replace(settings, top_p=message.top_p)
    if message.HasField("parallel_tool_calls"):
        settings = replace(settings, parallel_tool_calls=message.parallel_tool_calls)
    return settings


def _settings_message(settings: ModelSettings) -> pb.ModelSettings:
    return pb.ModelSettings(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        reasoning_effort=settings.reasoning_effort,
        parallel_tool_calls=settings.parallel_tool_calls,
        request_timeout=duration(settings.request_timeout_seconds),
    )


def _scopes_of(scopes: Iterable[str], no_scopes: bool) -> frozenset[str] | None:
    """None: the caller's."""
    return frozenset(scopes) if no_scopes or scopes else None
