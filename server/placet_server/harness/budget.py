"""Charging: what is about to be spent is charged before it is, and what came of it takes the place of that.

A bound is passed only by what is not begun. Nothing here is ever taken back but a reserve, by what it was for: so a
resume, a rescue or a further try begins with what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from placet_server.model.entry import Answered, Failed, Requested, Told
from placet_server.model.usage import NOTHING, Budget, Counters, Price, Reserve, Spent, Usage

# Of JSON and prose in most tongues a token has three bytes or more.
_BYTES_PER_TOKEN = 3


def reserve_for(known_tokens: int, new_bytes: int, max_tokens: int, price: Price | None) -> Reserve:
    """What a request may cost at most: what the request before it held, what is new, and the longest answer."""
    held = known_tokens + -(-new_bytes // _BYTES_PER_TOKEN)
    cost = 0 if price is None else price.cost(Usage(input_tokens=held, output_tokens=max_tokens))
    return Reserve(held + max_tokens, cost)


def bound_of_request(counters: Counters, budget: Budget, number: int, reserve: Reserve) -> Spent | None:
    """The bound that this request would pass; a further try of a turn is no further turn."""
    wanted = {
        "turns": counters.turns + (number == 1),
        "tokens": counters.tokens + reserve.tokens,
        "cost_micros": counters.micros + reserve.micros,
        "active_ms": counters.active_ms,
    }
    return _passed(budget, wanted)


def bound_of_calls(counters: Counters, budget: Budget, calls: int, equal_max: int) -> Spent | None:
    """As above, for the calls of one answer; `equal_max`: how often the most frequent of them would have been made."""
    return _passed(budget, {"calls": counters.calls + calls, "equal_calls": equal_max})


def charge_request(counters: Counters, requested: Requested) -> Counters:
    return replace(
        counters,
        turns=counters.turns + (requested.number == 1),
        requests=counters.requests + 1,
        reserved_tokens=counters.reserved_tokens + requested.tokens,
        reserved_micros=counters.reserved_micros + requested.micros,
    )


def credit_answer(counters: Counters, asked: Requested, answered: Answered) -> Counters:
    """The usage takes the place of the reserve. Calls are counted if any of them is made, and delegates get their
    shares.
    """
    if answered.usage is not None:
        counters = _spend(counters, answered.usage, answered.cost_micros or 0, answered.cost_micros is None)
        counters = _free(counters, asked.reserve)
    else:
        counters = replace(counters, unpriced=counters.unpriced + 1)
    if answered.spent is not None:
        return counters
    counters = replace(counters, calls=counters.calls + len(answered.calls))
    for call in answered.calls:
        counters = replace(
            counters,
            reserved_tokens=counters.reserved_tokens + call.reserve.tokens,
            reserved_micros=counters.reserved_micros + call.reserve.micros,
        )
    return counters


def credit_failure(counters: Counters, asked: Requested, failed: Failed) -> Counters:
    """What the provider may have worked for stays charged; what it refused at once is free."""
    return counters if failed.charged else _free(counters, asked.reserve)


def credit_results(counters: Counters, shares: dict[int, Reserve], results: Iterable[Told]) -> Counters:
    """What delegates have spent takes the place of their shares; of one that nobody knows this of, it stays charged."""
    for told in results:
        if told.usage is not None:
            counters = _free(counters, shares.get(told.call, NOTHING))
            counters = _spend(counters, told.usage, told.cost_micros, told.unpriced > 0)
    return counters


def slice_for(counters: Counters, budget: Budget, choice: Budget, delegates: int) -> Budget:
    """The budget of one of so many delegates of a turn: its own, within an equal share of what is left."""
    left = {
        "tokens": (budget.tokens, counters.tokens),
        "cost_micros": (budget.cost_micros, counters.micros),
        "active_ms": (budget.active_ms, counters.active_ms),
    }
    # At least 1, since 0 is no bound: a delegate that is left nothing ends at its first request.
    shares = {
        name: max((bound - spent) // max(delegates, 1), 1) for name, (bound, spent) in left.items() if bound
    }
    return choice.tightened(Budget(**shares))


def _passed(budget: Budget, wanted: dict[str, int]) -> Spent | None:
    for name, value in wanted.items():
        bound = getattr(budget, name)
        if bound and value > bound:
            return Spent(budget=name, bound=bound)
    return None


def _spend(counters: Counters, usage: Usage, micros: int, is_unpriced: bool) -> Counters:
    return replace(
        counters,
        input_tokens=counters.input_tokens + usage.input_tokens,
        output_tokens=counters.output_tokens + usage.output_tokens,
        cached_tokens=counters.cached_tokens + usage.cached_tokens,
        cost_micros=counters.cost_micros + micros,
        unpriced=counters.unpriced + is_unpriced,
    )


def _free(counters: Counters, reserve: Reserve) -> Counters:
    return replace(
        counters,
        reserved_tokens=counters.reserved_tokens - reserve.tokens,
        reserved_micros=counters.reserved_micros - reserve.micros,
    )
