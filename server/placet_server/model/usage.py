"""What a run may spend, and what it has spent. Counters are absolute, and of the whole run: nothing resets them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import NamedTuple, Self

MICROS = 1_000_000
COUNTER_MAX = 2**53


class BudgetReason(StrEnum):
    """Names of ErrorReason."""

    TURN_BUDGET = "TURN_BUDGET"
    LOOP_BUDGET = "LOOP_BUDGET"
    SPEND_BUDGET = "SPEND_BUDGET"


_REASONS = {
    "turns": BudgetReason.TURN_BUDGET,
    "calls": BudgetReason.LOOP_BUDGET,
    "equal_calls": BudgetReason.LOOP_BUDGET,
    "tokens": BudgetReason.SPEND_BUDGET,
    "cost_micros": BudgetReason.SPEND_BUDGET,
    "active_ms": BudgetReason.SPEND_BUDGET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds; 0 is none. `equal_calls`: how often one tool may be called with equal arguments. `tokens`: input and
    output together. `active_ms`: time in which something of the run runs; waiting is free.
    """

    turns: int = 0
    calls: int = 0
    equal_calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    active_ms: int = 0

    def tightened(self, other: Budget) -> Budget:
        """Of each two bounds the lower one."""
        return Budget(**{name: _lower(getattr(self, name), getattr(other, name)) for name in _REASONS})

    def without(self, counters: Counters) -> Budget:
        """What is left of it after that was spent; at least 1, since 0 is no bound. Equal calls are each run's own."""
        spent = {
            "turns": counters.turns,
            "calls": counters.calls,
            "tokens": counters.tokens,
            "cost_micros": counters.micros,
            "active_ms": counters.active_ms,
        }
        left = {name: max(bound - spent[name], 1) for name in spent if (bound := getattr(self, name))}
        return replace(self, **left)


BUDGET_MAX = Budget(
    turns=10_000,
    calls=100_000,
    equal_calls=100_000,
    tokens=10**12,
    cost_micros=10**15,
    active_ms=30 * 86400 * 1000,
)
"""Larger than what anybody may say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Which bound would be passed by going on. `budget` is a member of Budget."""

    budget: str
    bound: int

    @property
    def reason(self) -> BudgetReason:
        return _REASONS[self.budget]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of one answer, as the provider counted it: `cached_tokens` are among `input_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Reserve(NamedTuple):
    """What may be spent by something that is under way, and is charged as if it were."""

    tokens: int = 0
    micros: int = 0


NOTHING = Reserve()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a run has spent so far, with what its delegates have that have ended. `requests` counts tries too.
    `unpriced`: answers whose cost is not known, or not wholly. Reserves: of the request that is under way, of requests
    whose answer was lost, of delegates that have not ended.
    """

    turns: int = 0
    requests: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    active_ms: int = 0
    reserved_tokens: int = 0
    reserved_micros: int = 0

    @property
    def tokens(self) -> int:
        """All that counts against the budget."""
        return self.input_tokens + self.output_tokens + self.reserved_tokens

    @property
    def micros(self) -> int:
        """As `tokens`."""
        return self.cost_micros + self.reserved_micros

    def with_other(self, other: Counters) -> Self:
        """Charged with what another run has spent, all but its time, and no more than the store can hold."""
        sums = {name: min(getattr(self, name) + getattr(other, name), COUNTER_MAX) for name in _CHARGED}
        return replace(self, **sums)


_CHARGED = tuple(each.name for each in fields(Counters) if each.name != "active_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Millionths of the currency for a million tokens."""

    input_micros: int
    output_micros: int
    cached_micros: int

    def cost(self, usage: Usage) -> int:
        """In millionths, rounded up: a budget is never passed by fractions."""
        fresh = max(usage.input_tokens - usage.cached_tokens, 0)
        total = (
            fresh * self.input_micros
            + usage.cached_tokens * self.cached_micros
            + usage.output_tokens * self.output_micros
        )
        return -(-total // MICROS)


def _lower(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other
