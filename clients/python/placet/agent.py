"""What an author says of an agent. What is not said is left to the server's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from placet.v1 import capability_pb2

if TYPE_CHECKING:
    from placet.contract import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A declared agent. It has no handler: the server runs it."""

    name: str
    version: str
    capability: capability_pb2.Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run may spend; 0 is no bound of its own, and the server's holds. `equal_calls`: of one tool with equal
    arguments. `tokens`: input and output together. `cost_micros`: millionths of the price list's currency.
    `active_time`: while something of the run runs; waiting is free.
    """

    turns: int = 0
    calls: int = 0
    equal_calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    active_time: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`compact_at_tokens` 0: when the model's context is nearly full. `keep_turns`: kept as they were; 0: 8."""

    compact_at_tokens: int = 0
    keep_turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How the model is asked. `max_tokens`: of one answer; 0: 4096. `request_timeout` None: 120 s. The rest, if it is
    not said, is the provider's to choose.
    """

    max_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str = ""
    parallel_tool_calls: bool | None = None
    request_timeout: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRetry:
    """How often one turn is asked for, 0: 6 times, and how long may lie between two tries, None: 5 minutes."""

    tries_max: int = 0
    delay_max: Span | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A capability, or a pattern such as "orders.*". `scopes` None: all that the agent's caller has; empty: none."""

    name: str
    _: KW_ONLY
    version: str = ""
    scopes: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class DelegateChoice:
    """Another agent that this one may ask. `budget`: for one question, and never more than is left to who asks.
    `description`: what the model is told of it instead of its own.
    """

    agent: Agent | str
    _: KW_ONLY
    version: str = ""
    description: str = ""
    budget: Budget | None = None
    scopes: Sequence[str] | None = None


INLINE_AGENT = "placet.agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineAgent:
    """An agent for one run, in no manifest, by asking it: `client.ask(InlineAgent(model="fast", tools=[…]), "…")`.
    `tools` and `delegates` are names, and no patterns; `max_tokens` of one answer, 0: 4096.
    """

    model: str
    instructions: str = ""
    tools: Sequence[str] = ()
    delegates: Sequence[str] = ()
    max_tokens: int = 0
