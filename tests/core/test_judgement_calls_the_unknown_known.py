"""The rule behind every ending: what may have happened is never called cancelled, exhausted or failed."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from placet_server.core.execution.ending import (
    UNWANTED,
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
from placet_server.model.contract import Backoff
from placet_server.model.lifecycle import ActionState, check_transition
from placet_server.model.outcome import TEMPORARY_CATEGORIES, EffectState, FailureCategory

NOW_US = 1_000_000
Judged = list[tuple[Action, Ending, StopCause | None, Verdict]]
CLEAN = {ActionState.CANCELLED, ActionState.EXHAUSTED, ActionState.FAILED}
CLASSES = ("READ", "COMPOSED", "IDEMPOTENT", "RECONCILABLE", "UNSAFE")
SILENT = {*TEMPORARY_CATEGORIES, FailureCategory.INVALID, FailureCategory.FORBIDDEN}
ENDINGS: tuple[Ending, ...] = (
    Returned(output_json="1", output_digest="00"),
    ReturnedBadly(path="", message="no"),
    Raised(),
    *(Stopped(cause=cause, entered=entered) for cause in StopCause for entered in (True, False)),
    *(
        Failed(code="x", message="m", category=category, effect=effect)
        for category in FailureCategory
        for effect in EffectState
    ),
)


def running(
    effect_class: str = "UNSAFE",
    *,
    begun: bool = True,
    unknown: bool = False,
    last_attempt: bool = False,
    expired: bool = False,
    cancelled: bool = False,
    keyed: bool = True,
    submitted: bool = False,
) -> Action:
    """A running action; what its class does not have is left out."""
    is_read = effect_class == "READ"
    return Action(
        action_id="00000000-0000-7000-8000-000000000000",
        requester=Requester(tenant="acme", subject="alice", kind="USER"),
        capability="shop.refund",
        version="1",
        contract_digest="00",
        effect_class=effect_class,
        state=ActionState.RUNNING,
        input_json="{}",
        input_digest="00",
        idempotency_key="k" if keyed else "",
        attempt=3 if last_attempt else 2,
        attempts_max=3,
        effect=None if is_read else EffectState.UNKNOWN if unknown else EffectState.NOT_DONE,
        effect_begun=begun and not is_read,
        effect_unknown=unknown and effect_class not in ("READ", "COMPOSED"),
        effect_key_expire_time_us=(NOW_US if expired else NOW_US + 1)
        if effect_class == "IDEMPOTENT"
        else None,
        cancel_requested_time_us=1 if cancelled else None,
        lease_id="00000000-0000-4000-8000-000000000000",
        queue="default" if submitted else "",
    )


def every_situation() -> Iterator[tuple[Action, Ending, StopCause | None]]:
    for effect_class, flags in product(CLASSES, product((False, True), repeat=7)):
        begun, unknown, last, expired, cancelled, keyed, submitted = flags
        action = running(
            effect_class,
            begun=begun,
            unknown=unknown,
            last_attempt=last,
            expired=expired,
            cancelled=cancelled,
            keyed=keyed,
            submitted=submitted,
        )
        for ending in ENDINGS:
            stops = [ending.cause] if isinstance(ending, Stopped) else [None, *StopCause]
            for stop in stops:
                yield action, ending, stop


def touched(action: Action, ending: Ending) -> bool:
    """This attempt may have reached the provider."""
    return action.effect_begun and not (isinstance(ending, Stopped) and not ending.entered)


def answer(action: Action, ending: Ending) -> EffectState | None:
    """What the ending says of the effect over all attempts; None: nothing, or not enough."""
    match ending:
        case Returned() | ReturnedBadly():
            return EffectState.DONE
        case Failed(effect=EffectState.DONE):
            return EffectState.DONE
        case Failed(effect=EffectState.NOT_DONE, category=category):
            silent = category in SILENT or not touched(action, ending)
            return None if action.effect_unknown and silent else EffectState.NOT_DONE
        case _:
            return None


def may_have_happened(action: Action, ending: Ending) -> bool:
    if action.effect_class in ("READ", "COMPOSED") or answer(action, ending) is not None:
        return False
    return action.effect_unknown or touched(action, ending)


@pytest.fixture(scope="module")
def judged() -> Judged:
    return [(a, e, s, judge(a, e, now_us=NOW_US, stop=s)) for a, e, s in every_situation()]


def test_every_verdict_is_a_legal_move(judged: Judged) -> None:
    for action, _, _, verdict in judged:
        check_transition(action.state, verdict.state)


def test_what_may_have_happened_never_ends_cancelled_exhausted_or_failed(judged: Judged) -> None:
    wrong = [case for case in judged if may_have_happened(*case[:2]) and case[3].state in CLEAN]
    assert [] == wrong


def test_what_may_have_happened_stays_marked_unknown(judged: Judged) -> None:
    wrong = [
        case
        for case in judged
        if may_have_happened(*case[:2])
        and not (case[3].effect_unknown and case[3].effect is EffectState.UNKNOWN)
    ]
    assert [] == wrong


def test_what_cannot_have_happened_never_ends_ambiguous(judged: Judged) -> None:
    wrong = [
        case for case in judged if not may_have_happened(*case[:2]) and case[3].state is ActionState.AMBIGUOUS
    ]
    assert [] == wrong


def test_an_answer_about_the_effect_is_what_the_verdict_says(judged: Judged) -> None:
    wrong = [
        (case, told)
        for case in judged
        if case[0].effect_class != "READ"
        and (told := answer(*case[:2])) is not None
        and (case[3].effect is not told or case[3].effect_unknown)
    ]
    assert [] == wrong


def test_only_idempotent_effects_within_their_time_are_repeated_when_unknown(judged: Judged) -> None:
    again = [case for case in judged if case[3].state is ActionState.QUEUED and case[3].effect_unknown]
    assert again
    assert {"IDEMPOTENT"} == {action.effect_class for action, *_ in again}
    assert all((action.effect_key_expire_time_us or 0) > NOW_US for action, *_ in again)


def test_nothing_is_repeated_that_nobody_wants(judged: Judged) -> None:
    wrong = [
        case
        for case in judged
        if case[3].state is ActionState.QUEUED
        and (case[0].cancel_requested_time_us is not None or case[2] in UNWANTED)
    ]
    assert [] == wrong


def test_nothing_is_repeated_beyond_its_attempts_but_for_faults_that_are_not_its_own(
    judged: Judged,
) -> None:
    blameless = (StopCause.SHUTDOWN, StopCause.NEVER_STARTED)
    wrong = [
        case
        for case in judged
        if case[3].state is ActionState.QUEUED
        and case[0].attempt >= case[0].attempts_max
        and not (isinstance(case[1], Stopped) and case[1].cause in blameless)
    ]
    assert [] == wrong


def test_nothing_is_repeated_beyond_its_elapsed_budget_whatever_ended_it() -> None:
    over = {"backoff": Backoff(elapsed_seconds_max=1.0), "budget_time_us": NOW_US - 1_000_000}
    situations = [(a.changed(**over), e, s) for a, e, s in every_situation() if a.is_submitted]
    judged = [(a, e, s, judge(a, e, now_us=NOW_US, stop=s)) for a, e, s in situations]
    states = {case[3].state for case in judged}
    assert ActionState.QUEUED not in states
    assert {ActionState.EXHAUSTED, ActionState.AMBIGUOUS} <= states
    wrong = [case for case in judged if may_have_happened(*case[:2]) and case[3].state in CLEAN]
    assert [] == wrong


def test_an_answer_about_the_effect_ends_what_was_given_up() -> None:
    for action, ending, stop in every_situation():
        if action.effect_class == "READ" or not action.effect_begun:
            continue
        verdict = judge(action.changed(state=ActionState.AMBIGUOUS), ending, now_us=NOW_US, stop=stop)
        if answer(action, ending) is not None:
            check_transition(ActionState.AMBIGUOUS, verdict.state)


def test_nothing_executed_without_a_key_is_made_ready_when_nothing_happened(judged: Judged) -> None:
    wrong = [
        case
        for case in judged
        if case[3].state is ActionState.QUEUED
        and not case[3].effect_unknown
        and not case[0].idempotency_key
        and not case[0].is_submitted
    ]
    assert [] == wrong


def test_who_executes_is_told_every_failure_and_retries_itself(judged: Judged) -> None:
    wrong = [
        case
        for case in judged
        if not case[0].is_submitted
        and isinstance(case[1], Failed | Raised)
        and not may_have_happened(*case[:2])
        and case[3].state not in (ActionState.FAILED, ActionState.CANCELLED)
    ]
    assert [] == wrong


def test_only_a_temporary_failure_that_did_nothing_releases_the_key(judged: Judged) -> None:
    released = [case for case in judged if case[3].key_released]
    assert released
    assert all(case[3].state is ActionState.FAILED for case in released)
    assert all(not may_have_happened(*case[:2]) for case in released)
    assert all(isinstance(e, Failed) and e.category in TEMPORARY_CATEGORIES for _, e, *_ in released)
    assert not any(action.is_submitted for action, *_ in released)


def test_reads_have_no_effect(judged: Judged) -> None:
    reads = [verdict for action, *_, verdict in judged if action.effect_class == "READ"]
    assert {(None, False)} == {(verdict.effect, verdict.effect_unknown) for verdict in reads}


@pytest.mark.parametrize("effect_class", ["IDEMPOTENT", "RECONCILABLE", "UNSAFE"])
def test_a_stop_before_the_handler_began_is_not_ambiguous(effect_class: str) -> None:
    stopped = Stopped(cause=StopCause.CANCELLED_BY_CALLER, entered=False)
    verdict = judge(running(effect_class), stopped, now_us=NOW_US)
    assert (ActionState.CANCELLED, EffectState.NOT_DONE) == (verdict.state, verdict.effect)


def test_a_forgotten_admission_that_was_cancelled_is_cancelled() -> None:
    stopped = Stopped(cause=StopCause.NEVER_STARTED, entered=False)
    verdict = judge(running(cancelled=True), stopped, now_us=NOW_US)
    assert (ActionState.CANCELLED, "CANCELLED_BY_CALLER") == (verdict.state, verdict.reason)


def test_a_temporary_failure_after_a_cancel_stays_cancelled() -> None:
    failed = Failed(code="x", message="", category=FailureCategory.TEMPORARY, effect=EffectState.NOT_DONE)
    verdict = judge(running(), failed, now_us=NOW_US, stop=StopCause.CANCELLED_BY_CALLER)
    assert (ActionState.CANCELLED, False) == (verdict.state, verdict.key_released)


@pytest.mark.parametrize(
    ("unknown", "cancelled", "state"),
    [
        (False, True, ActionState.CANCELLED),
        (True, True, ActionState.AMBIGUOUS),
        (True, False, ActionState.AMBIGUOUS),
    ],
)
def test_a_ready_action_is_closed_truthfully(unknown: bool, cancelled: bool, state: ActionState) -> None:
    action = running("IDEMPOTENT", unknown=unknown, cancelled=cancelled).changed(state=ActionState.QUEUED)
    verdict = close_verdict(action, action.effect_key_expire_time_us or 0)
    assert verdict is not None
    check_transition(action.state, verdict.state)
    assert (state, unknown) == (verdict.state, verdict.effect_unknown)


def waiting(**changes: Any) -> Action:
    """Ready, with nothing unknown, its caller's deadline at NOW_US."""
    return running("UNSAFE").changed(
        state=ActionState.QUEUED, ready_time_us=NOW_US - 10, deadline_us=NOW_US, effect_begun=False, **changes
    )


SUBMITTED = {"queue": "default", "priority": 5, "attempt": 0}


@pytest.mark.parametrize(
    ("action", "now_us", "ending"),
    [
        (waiting(), NOW_US - 1, None),
        (waiting(), NOW_US, (ActionState.CANCELLED, "DEADLINE_EXCEEDED", "CALLER_GONE")),
        (waiting(on_caller_gone=OnCallerGone.DETACH), NOW_US, None),
        (waiting(**SUBMITTED), NOW_US, None),
        (waiting(**SUBMITTED, queue_delay_seconds=1e-5), NOW_US - 1, None),
        (
            waiting(**SUBMITTED, queue_delay_seconds=1e-5),
            NOW_US,
            (ActionState.EXHAUSTED, "QUEUE_DELAY", "QUEUE_DELAY"),
        ),
        (waiting(**SUBMITTED, queue_delay_seconds=1e-5, budget_time_us=NOW_US - 20), NOW_US, None),
    ],
    ids=["waits", "caller gone", "detached", "submitted", "in time", "too late", "begun before"],
)
def test_a_ready_action_that_nobody_cancels_ends_only_when_its_time_is_over(
    action: Action, now_us: int, ending: tuple[ActionState, str, str] | None
) -> None:
    verdict = close_verdict(action, now_us)
    assert ending == (None if verdict is None else (verdict.state, verdict.reason, verdict.cause))
