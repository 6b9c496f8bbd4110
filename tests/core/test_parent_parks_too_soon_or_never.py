"""A composed attempt parks when every step that it calls waits, not before, and once."""

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from placet_server.core.execution.quiet import Quiet
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState

PARK_SECONDS = 30.0
STEPS = "abc"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def child(step: str, state: str) -> Action:
    return cast(Action, SimpleNamespace(action_id=f"child-{step}", state=ActionState(state)))


def quiet(clock: Clock | None = None) -> Quiet:
    return Quiet(PARK_SECONDS, clock=clock or Clock())


def test_nothing_called_is_nothing_to_wait_for() -> None:
    assert quiet().park() is None


def test_a_step_that_is_being_admitted_keeps_the_others_in_memory() -> None:
    calls = quiet()
    calls.enter("a")
    calls.note("a", child("a", "WAITING"))
    assert ("child-a",) == calls.is_quiet()
    calls.enter("b")
    assert calls.is_quiet() is None
    calls.note("b", child("b", "RUNNING"))
    assert calls.is_quiet() is None
    calls.leave("b")
    assert ("child-a",) == calls.park()


def test_doubt_is_waited_for_only_while_somebody_is_asked() -> None:
    calls = quiet()
    calls.enter("a")
    calls.note("a", child("a", "AMBIGUOUS"), is_asked=False)
    assert calls.is_quiet() is None
    calls.note("a", child("a", "AMBIGUOUS"), is_asked=True)
    assert ("child-a",) == calls.is_quiet()


def test_a_step_that_runs_on_and_on_is_not_waited_for_in_memory() -> None:
    clock = Clock()
    calls = quiet(clock)
    calls.enter("a")
    calls.note("a", child("a", "RUNNING"))
    clock.now = PARK_SECONDS - 1
    calls.note("a", child("a", "QUEUED"))
    assert calls.is_quiet() is None
    clock.now = PARK_SECONDS
    assert ("child-a",) == calls.is_quiet()


def test_the_next_try_of_a_step_has_a_time_of_its_own() -> None:
    clock = Clock()
    calls = quiet(clock)
    calls.enter("a")
    calls.note("a", child("a", "RUNNING"))
    clock.now = PARK_SECONDS
    calls.note("a", child("a#2", "RUNNING"))
    assert calls.is_quiet() is None


def test_what_was_decided_once_stands() -> None:
    calls = quiet()
    calls.enter("a")
    calls.note("a", child("a", "WAITING"))
    assert ("child-a",) == calls.park()
    calls.note("a", child("a", "SUCCEEDED"))
    calls.enter("b")
    assert ("child-a",) == calls.park()
    assert calls.parked.is_set()


deeds = st.one_of(
    st.tuples(st.just("enter"), st.sampled_from(STEPS)),
    st.tuples(st.just("leave"), st.sampled_from(STEPS)),
    st.tuples(st.sampled_from(["WAITING", "RUNNING", "QUEUED"]), st.sampled_from(STEPS)),
    st.tuples(st.just("pass"), st.sampled_from(["1", "29", "30"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(deeds, max_size=25))
def test_it_is_quiet_exactly_when_all_that_was_called_waits(said: list[tuple[str, str]]) -> None:
    clock = Clock()
    calls = quiet(clock)
    model: dict[str, Any] = {}
    for what, which in said:
        if what == "pass":
            clock.now += float(which)
        elif what == "enter":
            calls.enter(which)
            model.setdefault(which, [0, None, None])[0] += 1
        elif which in model and what == "leave":
            calls.leave(which)
            model[which][0] -= 1
            if not model[which][0]:
                del model[which]
        elif which in model:
            calls.note(which, child(which, what))
            model[which][1:] = [what, clock.now if model[which][2] is None else model[which][2]]
        waiting = [w == "WAITING" or (s is not None and clock.now - s >= 30) for _, w, s in model.values()]
        expected = tuple(f"child-{step}" for step in sorted(model)) if model and all(waiting) else None
        assert expected == calls.is_quiet()
