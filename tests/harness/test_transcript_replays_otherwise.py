"""A run that is read again stands where it stood: cut after any entry, and also if it was compacted."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet_server.harness.compaction import compacted, request_of, summed_up, to_sum_up
from placet_server.harness.plan import plan, plan_of
from placet_server.harness.provider.answer import FINAL_OUTPUT, Answer, ModelCall
from placet_server.harness.replay import JournalBroken, replay, with_entry
from placet_server.harness.transcript import Stage, Transcript
from placet_server.model.entry import (
    Answered,
    Body,
    Entry,
    EntryRow,
    Failed,
    Opened,
    Purpose,
    Requested,
    Told,
    TurnProblem,
)
from placet_server.model.entry_text import entry_of, of_text
from placet_server.model.usage import Budget, Counters, Usage
from tests.harness.conversation import LOOKUP, REFUND

EXAMPLES = 1000 if os.environ.get("PLACET_LONG") else 60
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
COLLEAGUE = replace(LOOKUP, alias="colleague", name="colleague", delegate=True, budget=Budget(tokens=500))

arguments = st.sampled_from(
    ["", "{}", '{"order":"A-1"}', '{"order":"A-1","amount":"1"}', "[]", '{"n":1}', '{"a']
)
calls = st.builds(
    ModelCall,
    id=st.sampled_from(["a", "b", "c"]),
    tool=st.sampled_from([LOOKUP.alias, REFUND.alias, COLLEAGUE.alias, "nothing", FINAL_OUTPUT]),
    arguments=arguments,
)
usages = st.none() | st.builds(Usage, input_tokens=st.integers(1, 900), output_tokens=st.integers(0, 90))
answers = st.builds(
    Answer,
    text=st.sampled_from(['{"said":1}', '{"é":"\u2028"}']),
    said=st.lists(st.sampled_from(["", "hello"]), max_size=2).map(tuple),
    calls=st.lists(calls, max_size=4).map(tuple),
    usage=usages,
    cost_micros=st.none() | st.integers(0, 9),
    finish=st.just("stop"),
    cut_off=st.booleans(),
)
failures = st.tuples(st.sampled_from(list(TurnProblem)), st.booleans())
runs = st.builds(
    Opened,
    spec_digest=st.just("00"),
    model=st.just("m"),
    tools=st.just((LOOKUP, REFUND, COLLEAGUE)),
    budget=st.builds(Budget, calls=st.sampled_from([0, 3]), equal_calls=st.sampled_from([0, 1, 2])),
    output_schema=st.none() | st.just(SCHEMA),
)


class Script:
    """A run that is driven by dice, and everything that it wrote."""

    def __init__(self, opened: Opened, data: st.DataObject) -> None:
        self.data = data
        self.rows: list[EntryRow] = []
        self.states = [Transcript()]
        self.append(opened)

    @property
    def state(self) -> Transcript:
        return self.states[-1]

    def append(self, body: Body) -> None:
        entry = entry_of(body)
        row = EntryRow(
            type=entry.type, turn=entry.turn, body=entry.body, ordinal=len(self.rows) + 1, attempt=1
        )
        self.rows.append(row)
        self.states.append(with_entry(self.state, row))

    def step(self) -> None:
        state = self.state
        if state.stage is Stage.COMPACT:
            self.append(compacted(state, '{"head":1}'))
        elif state.asked is not None and state.answer is None and state.failure is None and self._is_heard():
            self._hear()
        elif state.stage in (Stage.ASK, Stage.CALL):
            self._ask()

    def _is_heard(self) -> bool:
        return self.data.draw(st.integers(0, 3)) > 0

    def _ask(self) -> None:
        state = self.state
        turn, number = state.next_request
        told: tuple[Told, ...] = ()
        if state.pending is not None:
            told = tuple(
                Told(
                    call=call.call,
                    turns=2,
                    requests=3,
                    usage=self.data.draw(usages) if call.slice else None,
                    cost_micros=1,
                )
                for call in state.pending.calls
            )
        messages = ('{"new":true}',) if number == 1 and not is_summed_up(state) else ()
        summed = to_sum_up(state, messages, self.data.draw(st.sampled_from([0, 0, 1, 40])))
        if summed is None:
            asked = Requested(turn=turn, number=number, results=told, messages=messages)
        else:
            asked = request_of(state, summed, told, (*messages, '{"sum":"up"}'))
        self.append(replace(asked, tokens=self.data.draw(st.integers(0, 99)), micros=3))

    def _hear(self) -> None:
        state = self.state
        assert state.opened is not None
        if self.data.draw(st.booleans()):
            category, charged = self.data.draw(failures)
            self.append(Failed(turn=state.turn, number=state.tries, category=category, charged=charged))
            return
        answer = self.data.draw(answers)
        decided = plan(
            answer, state.opened, turn=state.turn, counters=state.counters, equal=state.equal_calls()
        )
        if state.asked is not None and state.asked.purpose is Purpose.COMPACT:
            decided = summed_up(replace(answer, said=("all",)), state.turn)
        self.append(decided)


def is_summed_up(state: Transcript) -> bool:
    """Just now: what the model is told next is the summary."""
    return state.is_fresh and state.asked is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_any_prefix_of_a_run_replays_to_where_the_run_stood(data: st.DataObject) -> None:
    script = Script(data.draw(runs), data)
    for _ in range(data.draw(st.integers(0, 14))):
        script.step()
    for count in range(len(script.rows) + 1):
        assert script.states[count] == replay(script.rows[:count])
    begin = script.state.compacted
    if begin:
        kept = [row for row in script.rows if row.ordinal == 1 or row.ordinal >= begin]
        assert script.state == replay(kept)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_what_a_run_has_spent_is_what_its_entries_say_however_they_are_counted(data: st.DataObject) -> None:
    script = Script(data.draw(runs), data)
    for _ in range(data.draw(st.integers(0, 14))):
        script.step()
    bodies = [of_text(row.type, row.body) for row in script.rows]
    asked = [body for body in bodies if isinstance(body, Requested)]
    answered = [body for body in bodies if isinstance(body, Answered)]
    used = [body.usage for body in answered] + [told.usage for body in asked for told in body.results]
    held = sum(body.tokens for body in asked)
    for body in bodies:
        is_freed = isinstance(body, Answered) and body.usage is not None
        if is_freed or (isinstance(body, Failed) and not body.charged):
            held -= next(each.tokens for each in reversed(asked) if _is_before(bodies, each, body))
    given_away = {
        (body.turn, call.call): call.reserve.tokens
        for body in answered
        if not body.spent
        for call in body.calls
    }
    for body in asked:
        for told in body.results:
            if told.usage is not None:
                given_away.pop((body.turn - 1, told.call), None)
    counters = script.state.counters
    told_of = sum(told.usage is not None for body in asked for told in body.results)
    assert len(asked) + 3 * told_of == counters.requests
    assert len({body.turn for body in asked}) + 2 * told_of == counters.turns
    assert sum(usage.tokens for usage in used if usage) == counters.input_tokens + counters.output_tokens
    assert held + sum(given_away.values()) == counters.reserved_tokens


def _is_before(bodies: list[Body], one: Body, other: Body) -> bool:
    places = [index for index, body in enumerate(bodies) if body is one or body is other]
    return bodies[places[0]] is one


@settings(max_examples=EXAMPLES, deadline=None)
@given(answers, runs, st.integers(1, 9))
def test_a_plan_is_the_same_when_it_is_read_as_when_it_was_made(
    answer: Answer, opened: Opened, turn: int
) -> None:
    decided = plan(answer, opened, turn=turn, counters=Counters(), equal={})
    entry = entry_of(decided)
    read = of_text(entry.type, entry.body)
    assert decided == read
    assert plan_of(decided, opened) == plan_of(read, opened)
    assert len(answer.calls) == len(decided.calls)
    for call in decided.calls:
        assert 1 == sum([bool(call.step), bool(call.refusal), call.alias_of is not None])


def test_entries_in_an_order_that_no_run_writes_are_refused() -> None:
    opened = Opened(spec_digest="00", model="m")
    asked = Requested(turn=1, messages=("{}",))
    answered = Answered(turn=1, output="{}", messages=("{}",))
    failed = Failed(turn=1, category=TurnProblem.TIMEOUT)
    orders: list[list[Body]] = [
        [asked],
        [opened, opened],
        [opened, answered],
        [opened, failed],
        [opened, replace(asked, turn=2)],
        [opened, replace(asked, number=2)],
        [opened, asked, replace(asked, number=2)],
        [opened, asked, replace(asked, turn=2)],
        [opened, asked, answered, answered],
        [opened, asked, answered, replace(asked, turn=2)],
        [opened, asked, failed, answered],
        [opened, asked, failed, failed],
        [opened, asked, replace(answered, turn=2)],
    ]
    for bodies in orders:
        with pytest.raises(JournalBroken):
            replay(rows_of(bodies))


def test_a_request_that_nobody_has_the_answer_of_is_asked_again_as_the_next_try() -> None:
    opened = Opened(spec_digest="00", model="m")
    asked = Requested(turn=1, tokens=7, messages=('{"hi":1}',))
    state = replay(rows_of([opened, asked]))
    assert (1, 2) == state.next_request
    again = with_entry(state, entry_of(Requested(turn=1, number=2, tokens=7)))
    assert ['{"hi":1}'] == again.messages()
    assert (1, 2, 14) == (again.counters.turns, again.counters.requests, again.counters.reserved_tokens)


def test_the_history_of_a_session_stands_before_a_run_until_it_is_compacted() -> None:
    opened = Opened(spec_digest="00", model="m")
    state = replay(
        rows_of([opened, Requested(turn=1, purpose=Purpose.COMPACT, messages=("{}",)), Answered(turn=1)])
    )
    state = replace(state, history=('{"before":1}',))
    assert ['{"before":1}', "{}"] == state.messages()
    assert Stage.COMPACT is state.stage
    after = with_entry(state, entry_of(state.compaction(['{"sum":1}'])))
    assert ['{"sum":1}'] == after.messages()
    assert (2, 1) == after.next_request


def rows_of(bodies: list[Body]) -> list[EntryRow]:
    entries: list[Entry] = [entry_of(body) for body in bodies]
    return [
        EntryRow(type=entry.type, turn=entry.turn, body=entry.body, ordinal=number, attempt=1)
        for number, entry in enumerate(entries, start=1)
    ]
