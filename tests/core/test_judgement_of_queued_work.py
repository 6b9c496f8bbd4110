"""Nobody waits for what was submitted: the server tries it again while that is safe and its budget lasts, and what may
have happened is never called anything but unknown.
"""

from __future__ import annotations

from typing import Any

import pytest

from placet_server.core.execution.ending import (
    Ending,
    Failed,
    Raised,
    Returned,
    ReturnedBadly,
    StopCause,
    Stopped,
)
from placet_server.core.execution.judgement import close_verdict, judge
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action, OnCallerGone, Requester
from placet_server.model.contract import BACKOFF_JITTER, Backoff
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, FailureCategory

NOW_US = 1_000_000_000
HOUR_US = 3_600_000_000


def submitted(**changes: Any) -> Action:
    """Running, first of three attempts, of a class that has nothing to lose."""
    return Action(
        action_id="0190a0a0-0000-7000-8000-000000000001",
        requester=Requester(tenant="acme", subject="alice", kind="USER"),
        capability="shop.export",
        version="1",
        contract_digest="00",
        effect_class="READ",
        state=ActionState.RUNNING,
        input_json="{}",
        input_digest="00",
        attempt=1,
        attempts_max=3,
        lease_id="00000000-0000-4000-8000-000000000000",
        on_caller_gone=OnCallerGone.DETACH,
        queue="exports",
        priority=5,
        budget_time_us=NOW_US,
    ).changed(**changes)


def effectful(effect_class: str, *, begun: bool, unknown: bool = False) -> Action:
    return submitted(
        effect_class=effect_class,
        effect=EffectState.UNKNOWN if unknown else EffectState.NOT_DONE,
        effect_begun=begun,
        effect_unknown=unknown,
        effect_key_expire_time_us=NOW_US + HOUR_US if effect_class == "IDEMPOTENT" else None,
    )


def failed(category: FailureCategory, effect: EffectState, delay_seconds: float | None = None) -> Failed:
    return Failed(
        code="busy", message="try later", category=category, effect=effect, retry_delay_seconds=delay_seconds
    )


TEMPORARY, PERMANENT = FailureCategory.TEMPORARY, FailureCategory.PERMANENT
NOT_DONE, DONE, UNKNOWN = EffectState.NOT_DONE, EffectState.DONE, EffectState.UNKNOWN
BUSY = failed(TEMPORARY, NOT_DONE)

SITUATIONS = {
    # Nothing can have happened: no effect, or it has not begun.
    "read": submitted(),
    "unbegun": effectful("UNSAFE", begun=False),
    # This attempt may have taken effect.
    "idempotent": effectful("IDEMPOTENT", begun=True),
    "unsafe": effectful("UNSAFE", begun=True),
    # An earlier one may have.
    "idempotent?": effectful("IDEMPOTENT", begun=True, unknown=True),
    "unbegun?": effectful("IDEMPOTENT", begun=False, unknown=True),
}
ENDINGS: dict[str, Ending] = {
    "returned": Returned(output_json="1", output_digest="00"),
    "returned badly": ReturnedBadly(path="", message="no"),
    "passing, not done": BUSY,
    "passing, unknown": failed(TEMPORARY, UNKNOWN),
    "lasting, not done": failed(PERMANENT, NOT_DONE),
    "lasting, unknown": failed(PERMANENT, UNKNOWN),
    "lasting, done": failed(PERMANENT, DONE),
    "raised": Raised(),
    "timeout": Stopped(cause=StopCause.TIMEOUT),
    "cancelled": Stopped(cause=StopCause.CANCELLED_BY_CALLER),
    "shutdown": Stopped(cause=StopCause.SHUTDOWN),
    "instance lost": Stopped(cause=StopCause.INSTANCE_LOST),
    "never started": Stopped(cause=StopCause.NEVER_STARTED, entered=False),
}
# What becomes of it, and where it differs, after the last attempt. "again?": ready, the effect still unknown.
TRUTH = """
                  read             unbegun          idempotent       unsafe           idempotent?      unbegun?
returned          SUCCEEDED        SUCCEEDED        SUCCEEDED        SUCCEEDED        SUCCEEDED        SUCCEEDED
returned badly    FAILED           FAILED           FAILED           FAILED           FAILED           FAILED
passing, not done again EXHAUSTED  again EXHAUSTED  again EXHAUSTED  again EXHAUSTED  again? AMBIGUOUS again? AMBIGUOUS
passing, unknown  again EXHAUSTED  again EXHAUSTED  again? AMBIGUOUS AMBIGUOUS        again? AMBIGUOUS again? AMBIGUOUS
lasting, not done FAILED           FAILED           FAILED           FAILED           FAILED           again? AMBIGUOUS
lasting, unknown  FAILED           FAILED           again? AMBIGUOUS AMBIGUOUS        again? AMBIGUOUS again? AMBIGUOUS
lasting, done     FAILED           FAILED           FAILED           FAILED           FAILED           FAILED
raised            again EXHAUSTED  FAILED           again? AMBIGUOUS AMBIGUOUS        again? AMBIGUOUS again? AMBIGUOUS
timeout           again EXHAUSTED  again EXHAUSTED  again? AMBIGUOUS AMBIGUOUS        again? AMBIGUOUS again? AMBIGUOUS
cancelled         CANCELLED        CANCELLED        AMBIGUOUS        AMBIGUOUS        AMBIGUOUS        AMBIGUOUS
shutdown          again            again            again?           AMBIGUOUS        again?           again?
instance lost     again EXHAUSTED  again EXHAUSTED  again? AMBIGUOUS AMBIGUOUS        again? AMBIGUOUS again? AMBIGUOUS
never started     again            again            again            again            again?           again?
"""


def test_the_whole_truth_about_submitted_work() -> None:
    assert TRUTH.strip("\n").splitlines() == _table()


def _table() -> list[str]:
    rows = [["", *SITUATIONS]]
    for name, ending in ENDINGS.items():
        rows.append([name, *(_words(action, ending) for action in SITUATIONS.values())])
    return [f"{row[0]:<18}" + "".join(f"{cell:<17}" for cell in row[1:]).rstrip() for row in rows]


def _words(action: Action, ending: Ending) -> str:
    first, last = _word(action, ending), _word(action.changed(attempt=3), ending)
    return first if first == last else f"{first} {last}"


def _word(action: Action, ending: Ending) -> str:
    verdict = judge(action, ending, now_us=NOW_US)
    if verdict.state is not ActionState.QUEUED:
        return verdict.state.value
    return "again?" if verdict.effect_unknown else "again"


def test_a_spent_budget_tells_the_last_failure() -> None:
    verdict = judge(submitted(attempt=3), BUSY, now_us=NOW_US)
    assert (ActionState.EXHAUSTED, "RETRY_BUDGET", "HANDLER_FAILED") == (
        verdict.state,
        verdict.reason,
        verdict.cause,
    )
    assert ("busy", "try later", TEMPORARY) == (
        verdict.failure_code,
        verdict.message,
        verdict.failure_category,
    )
    assert not verdict.key_released


def test_what_waits_for_its_next_attempt_tells_why() -> None:
    verdict = judge(submitted(), BUSY, now_us=NOW_US)
    assert (ActionState.QUEUED, None, "HANDLER_FAILED", "busy", "try later") == (
        verdict.state,
        verdict.reason,
        verdict.cause,
        verdict.failure_code,
        verdict.message,
    )


def test_an_undeclared_error_of_a_read_is_told_as_one() -> None:
    verdict = judge(submitted(attempt=3), Raised(), now_us=NOW_US)
    assert ("UNDECLARED_ERROR", "undeclared_error") == (verdict.cause, verdict.failure_code)


@pytest.mark.parametrize("ending", [BUSY, Raised(), Stopped(cause=StopCause.TIMEOUT)], ids=str)
@pytest.mark.parametrize("left", [True, False])
def test_what_would_be_tried_again_is_cancelled_if_nobody_wants_it(ending: Ending, left: bool) -> None:
    action = submitted(attempt=1 if left else 3, cancel_requested_time_us=NOW_US)
    verdict = judge(action, ending, now_us=NOW_US)
    assert (ActionState.CANCELLED, "CANCELLED_BY_CALLER") == (verdict.state, verdict.reason)


def test_a_late_answer_to_what_was_given_up_ends_it_and_tries_nothing() -> None:
    given_up = effectful("UNSAFE", begun=True).changed(state=ActionState.AMBIGUOUS)
    verdict = judge(given_up, BUSY, now_us=NOW_US)
    assert (ActionState.FAILED, NOT_DONE, False) == (verdict.state, verdict.effect, verdict.key_released)


def pause(action: Action, ending: Ending = BUSY) -> float:
    verdict = judge(action, ending, now_us=NOW_US)
    assert ActionState.QUEUED is verdict.state
    return verdict.ready_delay_seconds


def test_pauses_grow_to_their_longest_and_each_action_has_its_own_jitter() -> None:
    backoff = Backoff(initial_delay_seconds=2.0, delay_seconds_max=10.0, multiplier=3.0)
    for number in range(50):
        action = submitted(
            action_id=f"0190a0a0-0000-7000-8000-{number:012d}", attempts_max=9, backoff=backoff
        )
        for attempt, exact in ((1, 2.0), (2, 6.0), (3, 10.0), (8, 10.0)):
            jitter = pause(action.changed(attempt=attempt)) / exact - 1.0
            assert abs(jitter) <= BACKOFF_JITTER + 1e-9
    pauses = {pause(submitted(action_id=f"0190a0a0-0000-7000-8000-{n:012d}")) for n in range(50)}
    assert 50 == len(pauses)
    assert max(pauses) - min(pauses) > BACKOFF_JITTER


def test_a_pause_is_at_least_what_the_handler_asks_for() -> None:
    assert 60.0 == pause(submitted(), failed(TEMPORARY, NOT_DONE, 60.0))
    assert pause(submitted()) == pause(submitted(), failed(TEMPORARY, NOT_DONE, 0.001))
    unknown = failed(TEMPORARY, UNKNOWN, 60.0)
    assert 60.0 == pause(effectful("IDEMPOTENT", begun=True), unknown)


def test_a_fault_that_is_not_its_own_costs_neither_time_nor_its_last_attempt() -> None:
    assert 0.0 == pause(submitted(attempt=3), Stopped(cause=StopCause.NEVER_STARTED, entered=False))
    assert 0.0 == pause(submitted(attempt=3), Stopped(cause=StopCause.SHUTDOWN))


def test_a_crash_pauses_so_that_poison_does_not_kill_one_server_after_another() -> None:
    assert pause(submitted(), Stopped(cause=StopCause.INSTANCE_LOST)) >= 1.0 - BACKOFF_JITTER


PATIENT = Backoff(initial_delay_seconds=1.0, delay_seconds_max=1.0, elapsed_seconds_max=10.0)
LATE_US = NOW_US + 9_500_000


@pytest.mark.parametrize(
    ("action", "ending", "state"),
    [
        (submitted(), BUSY, ActionState.EXHAUSTED),
        (submitted(), Stopped(cause=StopCause.TIMEOUT), ActionState.EXHAUSTED),
        (submitted(), Stopped(cause=StopCause.SHUTDOWN), ActionState.QUEUED),
        (effectful("UNSAFE", begun=False), BUSY, ActionState.EXHAUSTED),
        (effectful("IDEMPOTENT", begun=True), Raised(), ActionState.AMBIGUOUS),
        (effectful("IDEMPOTENT", begun=True, unknown=True), BUSY, ActionState.AMBIGUOUS),
    ],
    ids=["read", "timeout", "shutdown", "unbegun", "begun", "unknown before"],
)
def test_no_attempt_begins_after_the_elapsed_budget(
    action: Action, ending: Ending, state: ActionState
) -> None:
    action = action.changed(backoff=PATIENT)
    assert ActionState.QUEUED is judge(action, ending, now_us=NOW_US + 8_000_000).state
    assert state is judge(action, ending, now_us=LATE_US).state


def test_an_asked_pause_beyond_the_elapsed_budget_spends_it() -> None:
    action = submitted(backoff=PATIENT)
    verdict = judge(action, failed(TEMPORARY, NOT_DONE, 11.0), now_us=NOW_US)
    assert ActionState.EXHAUSTED is verdict.state


def closed(action: Action, now_us: int) -> Verdict | None:
    return close_verdict(action.changed(state=ActionState.QUEUED, backoff=PATIENT, lease_id=None), now_us)


def test_what_waits_beyond_its_elapsed_budget_is_given_up_with_its_last_failure() -> None:
    action = submitted(failure_code="busy", message="try later", failure_category=TEMPORARY)
    assert closed(action, NOW_US + 9_999_999) is None
    verdict = closed(action, NOW_US + 10_000_000)
    assert verdict is not None
    assert (ActionState.EXHAUSTED, "RETRY_BUDGET", "busy", "try later", TEMPORARY) == (
        verdict.state,
        verdict.reason,
        verdict.failure_code,
        verdict.message,
        verdict.failure_category,
    )


def test_what_waits_unknown_beyond_a_budget_is_ambiguous_whichever_ends_first() -> None:
    unknown = effectful("IDEMPOTENT", begun=True, unknown=True)
    for expiry_us, now_us, cause in (
        (NOW_US + HOUR_US, NOW_US + 10_000_000, "RETRY_BUDGET"),
        (NOW_US + 5_000_000, NOW_US + 5_000_000, "EFFECT_KEY_EXPIRED"),
    ):
        action = unknown.changed(effect_key_expire_time_us=expiry_us)
        assert closed(action, now_us - 1) is None
        verdict = closed(action, now_us)
        assert verdict is not None
        assert (ActionState.AMBIGUOUS, cause, True) == (verdict.state, verdict.cause, verdict.effect_unknown)
