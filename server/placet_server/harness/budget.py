"""Charging: what is about to be spent is charged before it is, and what came of it takes the place of that.

A bound is passed only by what is not begun. Nothing here is ever taken back but a reserve, by what it was for: so a
resume, a rescue or a further try begins with what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from placet_server.harness.provider.answer import FINAL_OUTPUT
from placet_server.model.entry import Answered, Failed, Requested, Told
from placet_server.model.usage import COUNTER_MAX, NOTHING, Budget, Counters, Price, Reserve, Spent, Usage

# Of JSON and prose in most tongues a token has three bytes or more.
BYTES_PER_TOKEN = 3
# Of words of whatever tongue it has fewer.
BYTES_PER_TOKEN_MAX = 8
# What most providers make of a large one at most.
PICTURE_TOKENS = 5000
_PICTURE_MARK = '"media_type":"image/'
# As messages are kept. Quotes within a text are escaped there, so no words look like it.
_PICTURE = re.compile(r'"data":"([A-Za-z0-9+/=_-]*)","media_type":"image/')


def reserve_for(known_tokens: int, new_bytes: int, max_tokens: int, price: Price | None) -> Reserve:
    """What a request may cost at most: what the request before it held, what is new, and the longest answer."""
    held = known_tokens + -(-new_bytes // BYTES_PER_TOKEN)
    cost = 0 if price is None else price.cost(Usage(input_tokens=held, output_tokens=max_tokens))
    return Reserve(held + max_tokens, cost)


def bytes_of(texts: Iterable[str]) -> int:
    """As they are charged: a picture has as many tokens as a model makes of it, however many bytes it is."""
    return sum(_charged_bytes(text) for text in texts)


def _charged_bytes(text: str) -> int:
    size = len(text.encode())
    if _PICTURE_MARK not in text:
        return size
    pictures = _PICTURE.findall(text)
    return size - sum(map(len, pictures)) + PICTURE_TOKENS * BYTES_PER_TOKEN * len(pictures)


def bound_of_request(counters: Counters, budget: Budget, number: int, reserve: Reserve) -> Spent | None:
    """The bound that this request would pass; a further try of a turn is no further turn."""
    wanted = {
        "turns": counters.turns + (number == 1),
        "tokens": counters.tokens + reserve.tokens,
        "cost_micros": counters.micros + reserve.micros,
        "active_ms": counters.active_ms,
    }
    return _passed(budget, wanted)


def bound_of_calls(
    counters: Counters, budget: Budget, calls: int, equal_max: int, delegates: int = 0
) -> Spent | None:
    """As above, for the calls of one answer; `equal_max`: how often the most frequent of them would have been made.
    Each of the `delegates` among them has to have a turn and a call of its own, and the run one more turn, to hear what
    came of them.
    """
    wanted = {
        "turns": counters.turns + delegates + (delegates > 0),
        "calls": counters.calls + calls + delegates,
        "equal_calls": equal_max,
    }
    return _passed(budget, wanted)


def bound_of_further(budget: Budget, spent: Counters) -> Spent | None:
    """Of a further try of a delegate, within what earlier ones have left: one turn and one call at least."""
    return _passed(budget, {"turns": spent.turns + 1, "calls": spent.calls + 1})


def charge_request(counters: Counters, requested: Requested) -> Counters:
    return replace(
        _hold(counters, requested.reserve),
        turns=counters.turns + (requested.number == 1),
        requests=counters.requests + 1,
    )


def credit_usage(counters: Counters, asked: Requested, usage: Usage | None, micros: int | None) -> Counters:
    """What an answer has cost takes the place of the reserve, tokens and money each; where nobody says it, that stays
    charged.
    """
    if usage is None:
        return replace(counters, unpriced=counters.unpriced + 1)
    reserve = asked.reserve if micros is not None else Reserve(asked.tokens, 0)
    return _free(_spend(counters, usage, micros or 0, int(micros is None)), reserve)


def credit_answer(counters: Counters, asked: Requested, answered: Answered) -> Counters:
    """As `credit_usage`. Calls are counted if any of them is made, and delegates get their shares; what is said by the
    call of `final_output` is an answer.
    """
    counters = credit_usage(counters, asked, answered.usage, answered.cost_micros)
    if answered.spent is not None:
        return counters
    counters = replace(
        counters, calls=counters.calls + sum(call.tool != FINAL_OUTPUT for call in answered.calls)
    )
    for call in answered.calls:
        counters = _hold(counters, call.reserve)
    return counters


def credit_failure(counters: Counters, asked: Requested, failed: Failed) -> Counters:
    """What the provider may have worked for stays charged; what it refused at once is free."""
    return counters if failed.charged else _free(counters, asked.reserve)


def credit_results(counters: Counters, shares: dict[int, Reserve], results: Iterable[Told]) -> Counters:
    """What delegates have spent takes the place of their shares; of one that nobody knows this of, it stays charged."""
    for told in results:
        if told.usage is not None:
            counters = replace(
                counters,
                turns=counters.turns + told.turns,
                requests=counters.requests + told.requests,
                calls=counters.calls + told.calls,
            )
            counters = _free(counters, shares.get(told.call, NOTHING))
            counters = _spend(counters, told.usage, told.cost_micros, told.unpriced)
            counters = _hold(counters, Reserve(told.reserved_tokens, told.reserved_micros))
    return counters


def slice_for(counters: Counters, budget: Budget, choice: Budget, delegates: int) -> Budget:
    """The budget of one of so many delegates of a turn: its own, within an equal share of what is left. One turn is
    kept for the run itself, to hear what came of it. `counters`: with the calls that ask them.
    """
    left = budget.without(counters)
    # With fewer than two nobody is asked: see `bound_of_calls`.
    left = replace(left, turns=max(left.turns - 1, 1) if left.turns else 0)
    shares = {
        name: max(bound // max(delegates, 1), 1)
        for name in ("turns", "calls", "tokens", "cost_micros", "active_ms")
        if (bound := getattr(left, name))
    }
    # One that is left no tokens ends at its first request.
    return choice.tightened(Budget(**shares))


def _passed(budget: Budget, wanted: dict[str, int]) -> Spent | None:
    for name, value in wanted.items():
        bound = getattr(budget, name)
        if bound and value > bound:
            return Spent(budget=name, bound=bound)
    return None


def _spend(counters: Counters, usage: Usage, micros: int, unpriced: int) -> Counters:
    return replace(
        counters,
        input_tokens=_sum(counters.input_tokens, usage.input_tokens),
        output_tokens=_sum(counters.output_tokens, usage.output_tokens),
        cached_tokens=_sum(counters.cached_tokens, usage.cached_tokens),
        cost_micros=_sum(counters.cost_micros, micros),
        unpriced=counters.unpriced + unpriced,
    )


def _sum(one: int, other: int) -> int:
    """Beyond what a provider can mean, and above every budget, it grows no more: the store has to hold it."""
    return min(one + other, COUNTER_MAX)


def _free(counters: Counters, reserve: Reserve) -> Counters:
    return _hold(counters, Reserve(-reserve.tokens, -reserve.micros))


def _hold(counters: Counters, reserve: Reserve) -> Counters:
    return replace(
        counters,
        reserved_tokens=counters.reserved_tokens + reserve.tokens,
        reserved_micros=counters.reserved_micros + reserve.micros,
    )
