"""One request of a run, and what comes of it as the entry that follows. Nothing but the provider is touched between the
entry that says that it will be asked and this one; and it is asked nothing before that entry is durable, which may yet
be on its way while the request is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from traceback import format_tb

from placet_server.core.execution.stretch import Stretch
from placet_server.harness.budget import credit_usage
from placet_server.harness.compaction import summed_up
from placet_server.harness.plan import plan
from placet_server.harness.provider.answer import (
    AgentsUnavailable,
    Answer,
    Delta,
    OnDelta,
    Pins,
    Provider,
    TurnFailure,
)
from placet_server.harness.transcript import Transcript
from placet_server.model.agent import ProviderRetry
from placet_server.model.entry import Answered, Entry, Failed, Opened, Purpose, TurnProblem
from placet_server.model.entry_text import EntryRefused, entry_of
from placet_server.model.usage import COUNTER_MAX

_log = logging.getLogger(__name__)
RETRY_SECONDS_FIRST = 1.0
# A delay that is shorter is not worth giving up what the run has in memory.
SLEPT_SECONDS_MAX = 5.0


async def unheard(delta: Delta) -> None:
    """For answers that nobody is told of before they are there."""


async def take_turn(
    stretch: Stretch,
    state: Transcript,
    provider: Provider,
    on_delta: OnDelta = unheard,
    place: str = "",
    *,
    told: Callable[[], None] = lambda: None,
) -> Entry:
    """Of a transcript whose newest entry is the request. `place`: where the model is, for the log. `told`: that entry
    is durable. Cancelled, it hangs up. Raises LeaseLost, AgentsUnavailable, and what `on_delta` raises.
    """
    assert state.opened is not None
    assert state.asked is not None
    is_summary = state.asked.purpose is Purpose.COMPACT
    # A summary is said to nobody else.
    heard = _Heard(unheard if is_summary else on_delta)
    sending = _Sending(stretch, told)
    try:
        with stretch.asking():
            answer = await provider.turn(
                state.messages(),
                pins_of(state.opened, is_summary=is_summary),
                state.opened.settings,
                on_delta=heard,
                timeout_seconds=state.opened.settings.request_timeout_seconds,
                before_sent=sending,
            )
    except TurnFailure as failure:
        await sending()
        stretch.reached("turn_received")
        where = f" at {place}" if place else ""
        _log.warning("%s%s gave no answer: %s", state.opened.model, where, failure)
        return entry_of(_failed(state, failure))
    except Exception as error:
        if error is heard.error or error is sending.error:
            raise
        await sending()
        if isinstance(error, AgentsUnavailable):
            raise
        return entry_of(_failed(state, _fault("asking the model", error)))
    stretch.reached("turn_received")
    return _kept(state, answer)


def pins_of(opened: Opened, *, is_summary: bool = False) -> Pins:
    """A summary is words, and no call: the tools are told all the same, as there are calls in what is summed up."""
    return Pins(
        instructions=opened.instructions,
        tools=opened.tools,
        output_schema=None if is_summary else opened.output_schema,
        calls_nothing=is_summary,
    )


def delay_of(failed: Failed, retry: ProviderRetry) -> float | None:
    """How long to wait after it: what the provider said, else twice as long each time. None: no more tries."""
    if failed.number >= retry.tries_max:
        return None
    wanted = failed.retry_delay_seconds
    if wanted is None:
        return min(RETRY_SECONDS_FIRST * 2.0 ** min(failed.number - 1, 16), retry.delay_seconds_max)
    return max(wanted, 0.0) if wanted <= retry.delay_seconds_max else None


def _failed(state: Transcript, failure: TurnFailure) -> Failed:
    return Failed(
        turn=state.turn,
        number=state.tries,
        category=failure.category,
        status=failure.status,
        retry_delay_seconds=failure.retry_after_seconds,
        charged=failure.charged,
        detail=failure.detail,
    )


def _kept(state: Transcript, answer: Answer) -> Entry:
    """Whatever is wrong with an answer is so with this one: it is not lost, and asked for again, without a word."""
    try:
        return entry_of(_answered(state, answer))
    except TurnFailure as said:
        failure = said
    except EntryRefused as error:
        failure = TurnFailure(TurnProblem.INVALID, charged=True, detail=f"the answer is too large: {error}")
    except Exception as error:
        failure = _fault("keeping its answer", error)
    return entry_of(_failed(state, failure))


def _answered(state: Transcript, answer: Answer) -> Answered:
    """Raises TurnFailure, and what comes of an answer that nobody has thought of."""
    assert state.opened is not None
    assert state.asked is not None
    answer = replace(answer, cost_micros=_cost(state.opened, answer))
    if state.asked.purpose is Purpose.COMPACT:
        return summed_up(answer, state.turn)
    counters = credit_usage(state.counters, state.asked, answer.usage, answer.cost_micros)
    return plan(answer, state.opened, turn=state.turn, counters=counters, equal=state.equal_calls())


def _cost(opened: Opened, answer: Answer) -> int | None:
    """By the price that the run was opened with, whatever the operator's file says by now."""
    if opened.price is None or answer.usage is None:
        return None
    return min(opened.price.cost(answer.usage), COUNTER_MAX)


def _fault(doing: str, error: Exception) -> TurnFailure:
    """One of ours or of the library's. The log tells where, and not its words, which may be a prompt's or a key's."""
    place = "".join(format_tb(error.__traceback__))
    _log.error("%s raised %s\n%s", doing, type(error).__name__, place)
    return TurnFailure(TurnProblem.INVALID, charged=True, detail=f"{doing} raised {type(error).__name__}")


class _Sending:
    """What has to be so before anything is sent, and what that raised."""

    def __init__(self, stretch: Stretch, told: Callable[[], None]) -> None:
        self._stretch = stretch
        self._told = told
        self._is_sent = False
        self.error: Exception | None = None

    async def __call__(self) -> None:
        if self._is_sent:
            return
        try:
            await self._stretch.entries.written()
            self._told()
            self._is_sent = True
            self._stretch.reached("turn_sent")
        except Exception as error:
            self.error = error
            raise


class _Heard:
    """Who is told what the model says, and what that raised: which is no failure of the model's."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.error: Exception | None = None

    async def __call__(self, delta: Delta) -> None:
        try:
            await self._on_delta(delta)
        except Exception as error:
            self.error = error
            raise
