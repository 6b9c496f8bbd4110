"""One request of a run, and what comes of it as the entry that follows. Nothing but the provider is touched between the
entry that says that it will be asked and this one.
"""

from __future__ import annotations

from placet_server.core.execution.stretch import Stretch
from placet_server.harness.budget import credit_usage
from placet_server.harness.compaction import summed_up
from placet_server.harness.plan import plan
from placet_server.harness.provider.answer import Answer, Delta, OnDelta, Pins, Provider, TurnFailure
from placet_server.harness.transcript import Transcript
from placet_server.model.agent import ProviderRetry
from placet_server.model.entry import (
    Answered,
    Entry,
    EntryRefused,
    Failed,
    Opened,
    Purpose,
    TurnProblem,
    entry_of,
)

RETRY_SECONDS_FIRST = 1.0
# A delay that is shorter is not worth giving up what the run has in memory.
SLEPT_SECONDS_MAX = 5.0


async def unheard(delta: Delta) -> None:
    """For answers that nobody is told of before they are there."""


async def take_turn(
    stretch: Stretch, state: Transcript, provider: Provider, on_delta: OnDelta = unheard
) -> Entry:
    """Of a transcript whose newest entry is the request. Raises AgentsUnavailable, and what `on_delta` raises.
    Cancelled, it hangs up.
    """
    assert state.opened is not None
    assert state.asked is not None
    is_summary = state.asked.purpose is Purpose.COMPACT
    stretch.reached("turn_sent")
    try:
        with stretch.asking():
            answer = await provider.turn(
                state.messages(),
                pins_of(state.opened, is_summary=is_summary),
                state.opened.settings,
                # A summary is said to nobody else.
                on_delta=unheard if is_summary else on_delta,
                timeout_seconds=state.opened.settings.request_timeout_seconds,
            )
    except TurnFailure as failure:
        stretch.reached("turn_received")
        return entry_of(_failed(state, failure))
    stretch.reached("turn_received")
    if is_summary:
        return _summary(state, answer)
    counters = credit_usage(state.counters, state.asked, answer.usage, answer.cost_micros)
    answered = plan(answer, state.opened, turn=state.turn, counters=counters, equal=state.equal_calls())
    return _kept(state, answered)


def _summary(state: Transcript, answer: Answer) -> Entry:
    try:
        return _kept(state, summed_up(answer, state.turn))
    except TurnFailure as failure:
        return entry_of(_failed(state, failure))


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


def _kept(state: Transcript, answered: Answered) -> Entry:
    try:
        return entry_of(answered)
    except EntryRefused as error:
        failure = TurnFailure(TurnProblem.INVALID, charged=True, detail=f"the answer is too large: {error}")
        return entry_of(_failed(state, failure))
