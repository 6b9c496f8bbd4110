"""What is summed up ends between two turns: never between a call and its result, and never with the newest turn."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from placet_server.harness import compaction
from placet_server.harness.clip import clipped
from placet_server.harness.compaction import (
    CLIPS,
    bound_of,
    compacted,
    cut,
    is_past_help,
    request_of,
    summed_up,
    sums_up_what_was_asked,
    to_sum_up,
)
from placet_server.harness.provider import wire
from placet_server.harness.provider.answer import Answer, Picture, ResultPart, TurnFailure
from placet_server.harness.replay import JournalBroken, with_entry
from placet_server.harness.transcript import Stage, Transcript
from placet_server.model.agent import Memory
from placet_server.model.entry import (
    Answered,
    Body,
    CallRecord,
    Failed,
    Opened,
    Purpose,
    Requested,
    Told,
    TurnProblem,
)
from placet_server.model.entry_text import entry_of

EXAMPLES = 2000 if os.environ.get("PLACET_LONG") else 100
SIGNED = [ThinkingPart("w" * 3000, signature="s" * 900, provider_name="anthropic")]
MADE = [ToolCallPart("x", json.dumps({"a": "v" * 3000}), tool_call_id="b")]
TOO_LONG = TurnProblem.CONTEXT_TOO_LONG
SAID = Answer(text='{"summary":1}', said=("It went well.",), finish="stop")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.integers(1, 900), min_size=1, max_size=40), st.integers(1, 12), st.integers(0, 6000))
def test_as_many_whole_turns_stay_as_may_and_the_newest_always(
    sizes: list[int], keep: int, kept_bytes_max: int
) -> None:
    answered_at = range(1, len(sizes), 2)
    found = cut(sizes, answered_at, keep, kept_bytes_max)
    if len(answered_at) < 2:
        assert found is None
        return
    assert found in answered_at[1:]
    kept = [place for place in answered_at if found is not None and place >= found]
    assert len(kept) <= keep
    if len(kept) > 1:
        assert sum(sizes[found:]) <= kept_bytes_max
    if len(kept) < min(keep, len(answered_at) - 1):
        assert sum(sizes[kept[0] - 2 :]) > kept_bytes_max


def run_of(turns: int, *, memory: Memory | None = None, message: str = '"told"') -> Transcript:
    """Each turn has one call, whose result is told with the next request, but for the last one's."""
    state = _after(Transcript(), Opened(spec_digest="00", model="m", memory=memory or Memory()))
    for turn in range(1, turns + 1):
        results = (Told(call=1),) if turn > 1 else ()
        state = _after(state, Requested(turn=turn, results=results, messages=(message,)))
        calls = (CallRecord(call=1, id="a", tool="x", step=f"turn/{turn}/call/1"),)
        state = _after(state, Answered(turn=turn, calls=calls, messages=(f'{{"answer":{turn}}}',)))
    return state


def _after(state: Transcript, *bodies: Body) -> Transcript:
    for body in bodies:
        state = with_entry(state, entry_of(body))
    return state


def _summary(state: Transcript, summed: int, messages: Sequence[str] = (), **members: object) -> Transcript:
    wanted = Requested(
        turn=state.turn + 1,
        purpose=Purpose.COMPACT,
        summed=summed,
        messages=(*messages, '"sum up"'),
        **members,  # type: ignore[arg-type]
    )
    return _after(state, wanted)


def test_what_is_asked_for_is_what_is_summed_up_and_what_follows_is_the_rest() -> None:
    state = run_of(5, memory=Memory(keep_turns=2))
    summed = to_sum_up(state, ('"result 5"',), 30)
    assert 7 == summed
    state = _summary(state, 7, ('"result 5"',), results=(Told(call=1),))
    told = ['"told"', '{"answer":1}', '"told"', '{"answer":2}', '"told"', '{"answer":3}', '"told"']
    assert [*told, '"sum up"'] == state.messages()
    again = _after(
        state,
        Failed(turn=6, category=TurnProblem.TIMEOUT),
        Requested(turn=6, number=2, purpose=Purpose.COMPACT),
    )
    assert state.messages() == again.messages()
    state = _after(again, summed_up(SAID, 6))
    assert Stage.COMPACT is state.stage
    state = _after(state, compacted(state, '"head"'))
    assert ['"head"', '{"answer":4}', '"told"', '{"answer":5}', '"result 5"'] == state.messages()
    assert ((7, 1), (1, 3), Stage.ASK) == (state.next_request, state.answered_at, state.stage)
    # At once again would not help it, however long it is.
    assert None is to_sum_up(state, (), 1)
    state = _after(state, Requested(turn=7), Answered(turn=7, messages=('{"answer":7}',)))
    assert (1, 3, 5) == state.answered_at
    assert 5 == to_sum_up(state, (), 1)


def test_what_did_not_fit_is_summed_up_once() -> None:
    state = run_of(3)
    assert None is to_sum_up(state, (), 0)
    asked = Requested(turn=4, results=(Told(call=1),), messages=('"long"',))
    state = _after(state, asked, Failed(turn=4, category=TurnProblem.CONTEXT_TOO_LONG))
    assert not is_past_help(state)
    summed = to_sum_up(state, (), 0)
    assert summed is not None
    state = _after(_summary(state, summed), summed_up(SAID, 5))
    state = _after(state, compacted(state, '"head"'), Requested(turn=6))
    assert '"long"' == state.messages()[-1]
    assert is_past_help(_after(state, Failed(turn=6, category=TurnProblem.CONTEXT_TOO_LONG)))
    failed = _after(run_of(1), asked_again(), Failed(turn=2, category=TurnProblem.CONTEXT_TOO_LONG))
    assert is_past_help(failed)


def asked_again() -> Requested:
    return Requested(turn=2, results=(Told(call=1),), messages=('"long"',))


def test_a_summary_that_does_not_fit_is_asked_for_with_less_of_each_message_until_it_is_past_help() -> None:
    state = _summary(run_of(3), 3, ('"result"',), results=(Told(call=1),))
    clips = []
    while not is_past_help(state := _after(state, Failed(turn=state.turn, category=TOO_LONG))):
        count = to_sum_up(state, (), 0)
        assert 3 == count
        state = _after(state, asked := request_of(state, 3, (), ('"sum up"',)))
        clips.append(asked.clip)
    assert list(CLIPS) == clips


def test_what_does_not_fit_is_told_by_its_ends() -> None:
    picture = Picture(media_type="image/png", data=b"x" * 3000)
    texts = [
        wire.request_text(["é" * 2000, picture], [ResultPart(call=1, id="a", tool="x", text="y" * 3000)]),
        wire.request_text(["Short."]),
        wire.dump(ModelResponse(parts=[*SIGNED, TextPart("z" * 3000, id="t"), *MADE])),
    ]
    less = clipped(texts, 1500)
    assert texts[1] == less[1]
    # Of the model's own there is no signature of what it does not say, nor an id of what is no longer that.
    (answer,) = wire.load(less[2:])
    words_said, made = answer.parts
    assert isinstance(words_said, TextPart)
    assert isinstance(made, ToolCallPart)
    assert (None, "b", 1) == (words_said.id, made.tool_call_id, len(made.args_as_dict()))
    assert len(less[2].encode()) < len(wire.dump(ModelResponse(parts=[]))) + 1200
    # Who goes on from it sends it as it was.
    assert [*less[:2], texts[2]] == clipped(texts, 1500, with_answers=False)
    (message,) = wire.load(less[:1])
    told, asked = message.parts
    assert isinstance(told, ToolReturnPart)
    assert isinstance(asked, UserPromptPart)
    assert (f"{'y' * 83}[2834 bytes are left out here]{'y' * 83}", "a") == (told.content, told.tool_call_id)
    words, shown = map(str, asked.content)
    assert (words.count("é"), "3834 bytes" in words, shown) == (82, True, "[a picture is left out here]")
    assert texts == clipped(texts, 100_000)


def test_a_summary_without_words_is_asked_for_again() -> None:
    with pytest.raises(TurnFailure) as caught:
        summed_up(Answer(text="{}", said=(" ",)), 1)
    assert caught.value.category.is_temporary


def test_a_summary_of_more_than_there_is_is_no_entry_of_ours() -> None:
    state = run_of(1)
    with pytest.raises(JournalBroken):
        _summary(state, 9, results=(Told(call=1),))


def test_what_nobody_says_of_a_model_bounds_nothing() -> None:
    assert (0, 700, 5) == (
        bound_of(Memory(), 0),
        bound_of(Memory(), 1000),
        bound_of(Memory(compact_at_tokens=5), 1000),
    )


HISTORY = ('"long ago"', '{"answer":0}', '"then"', '{"answer":1}')
SHORT = Memory(keep_turns=1)


def in_session(state: Transcript, *history: str) -> Transcript:
    answers = tuple(place for place, text in enumerate(history) if "answer" in text)
    return replace(state, history=history, history_answers=answers)


def test_what_was_said_in_the_session_before_is_summed_up_first_but_for_its_newest_turn() -> None:
    opened = _after(Transcript(), Opened(spec_digest="00", model="m", memory=SHORT))
    state = in_session(opened, *HISTORY)
    assert 3 == to_sum_up(state, ('"asked"',), 1)
    state = _after(state, request_of(state, 3, (), ('"asked"', '"sum up"')))
    assert [*HISTORY[:3], '"sum up"'] == state.messages()
    state = _after(state, summed_up(SAID, 1))
    assert not sums_up_what_was_asked(state)
    state = _after(state, compacted(state, '"head"'))
    assert ['"head"', '{"answer":1}', '"asked"'] == state.messages()
    assert ((1,), 2) == (state.answered_at, state.asked_at)
    state = _after(state, Requested(turn=2), Answered(turn=2, messages=('{"answer":2}',)))
    assert 3 == to_sum_up(state, ('"result"',), 1)
    state = _after(state, request_of(state, 3, (), ('"result"', '"sum up"')), summed_up(SAID, 3))
    assert sums_up_what_was_asked(state)
    state = _after(state, compacted(state, '"asked, head"'))
    assert (['"asked, head"', '{"answer":2}', '"result"'], 0) == (state.messages(), state.asked_at)


def test_all_of_the_session_is_summed_up_where_none_of_it_was_answered_or_the_run_has_gone_on() -> None:
    opened = _after(Transcript(), Opened(spec_digest="00", model="m"))
    state = in_session(opened, '"long ago"')
    assert 1 == to_sum_up(state, ('"asked"',), 1)
    state = _after(state, request_of(state, 1, (), ('"asked"', '"sum up"')))
    assert ['"long ago"', '"sum up"'] == state.messages()
    later = in_session(run_of(1), *HISTORY)
    assert 5 == to_sum_up(later, ('"result"',), 1)
    assert (1, None) == ((asked := request_of(later, 5, (), ())).summed, asked.past)


def test_what_was_said_last_in_the_session_is_summed_up_too_where_one_entry_could_not_keep_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = _after(Transcript(), Opened(spec_digest="00", model="m", memory=SHORT))
    state = in_session(opened, *HISTORY, '"large"', '"large, again"')
    assert 3 == to_sum_up(state, ('"asked"',), 1)
    monkeypatch.setattr(compaction, "KEPT_BYTES_MAX", 30)
    assert 6 == to_sum_up(state, ('"asked"',), 1)
    state = _after(state, request_of(state, 6, (), ('"asked"', '"sum up"')), summed_up(SAID, 1))
    state = _after(state, compacted(state, '"head"'))
    assert (['"head"', '"asked"'], 1) == (state.messages(), state.asked_at)


def test_a_summary_of_a_session_that_does_not_fit_is_asked_for_of_less_until_there_is_no_less() -> None:
    opened = _after(Transcript(), Opened(spec_digest="00", model="m", memory=SHORT))
    state = in_session(opened, *HISTORY, '"now"', '{"answer":2}')
    state = _after(state, request_of(state, 5, (), ('"asked"', '"sum up"')))
    counts = []
    while True:
        state = _after(state, Failed(turn=state.turn, category=TOO_LONG))
        if (count := to_sum_up(state, (), 0)) is None:
            break
        with pytest.raises(JournalBroken):
            _after(state, replace(request_of(state, state.summed, (), ('"sum up"',)), clip=0))
        counts.append(count)
        state = _after(state, request_of(state, count, (), ('"sum up"',)))
    assert [3, 1, 1, 1] == counts
    assert is_past_help(state)
