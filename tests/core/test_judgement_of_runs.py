"""What a run comes to that puts itself off or has spent a bound: it costs no attempt, and who does not want it any more
has it ended.
"""

from __future__ import annotations

import pytest

from placet_server.core.execution.ending import Exhausted, Postponed, StopCause
from placet_server.core.execution.judgement import judge
from placet_server.model.budget_errors import bound_of
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.test_judgement_of_queued_work import NOW_US, submitted

RUN = submitted(effect_class="COMPOSED", effect=EffectState.NOT_DONE, effect_begun=True)


@pytest.mark.parametrize(
    ("stop", "cancelled", "state", "cause"),
    [
        (None, False, ActionState.QUEUED, "POSTPONED"),
        (StopCause.SHUTDOWN, False, ActionState.QUEUED, "POSTPONED"),
        (StopCause.TIMEOUT, False, ActionState.QUEUED, "POSTPONED"),
        (StopCause.CANCELLED_BY_CALLER, False, ActionState.CANCELLED, "CANCELLED_BY_CALLER"),
        (StopCause.DEADLINE_EXCEEDED, False, ActionState.CANCELLED, "DEADLINE_EXCEEDED"),
        (None, True, ActionState.CANCELLED, "CANCELLED_BY_CALLER"),
    ],
)
@pytest.mark.parametrize("attempt", [1, 3])
def test_who_puts_itself_off_goes_on_while_it_is_wanted_however_many_attempts_are_left(
    stop: StopCause | None, cancelled: bool, state: ActionState, cause: str, attempt: int
) -> None:
    run = RUN.changed(attempt=attempt, cancel_requested_time_us=NOW_US if cancelled else None)
    verdict = judge(run, Postponed(delay_seconds=7.5, lane_number=3), now_us=NOW_US, stop=stop)
    assert (state, cause, EffectState.NOT_DONE) == (verdict.state, verdict.cause, verdict.effect)
    if state is ActionState.QUEUED:
        assert (7.5, 3) == (verdict.ready_delay_seconds, verdict.lane_number)


@pytest.mark.parametrize(("asked", "given"), [(-1.0, 0.0), (10.0**9, 86_400.0)])
def test_nobody_puts_itself_off_for_ever(asked: float, given: float) -> None:
    verdict = judge(RUN, Postponed(delay_seconds=asked), now_us=NOW_US)
    assert given == verdict.ready_delay_seconds


@pytest.mark.parametrize("stop", [None, StopCause.SHUTDOWN, StopCause.CANCELLED_BY_CALLER])
def test_what_is_spent_is_spent_whatever_stops_it(stop: StopCause | None) -> None:
    spent = Exhausted(reason="LOOP_BUDGET", cause=bound_of("calls", 100), message="no more")
    verdict = judge(RUN, spent, now_us=NOW_US, stop=stop)
    assert (ActionState.EXHAUSTED, "LOOP_BUDGET", "calls=100", "no more") == (
        verdict.state,
        verdict.reason,
        verdict.cause,
        verdict.message,
    )
