"""Text that was dumped once is the same when it is read and dumped again, so whoever does it by mistake breaks nothing;
and whatever a model wrote can be sent.
"""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placet_server.harness.provider.answer import Picture, ResultPart

EXAMPLES = 1000 if os.environ.get("PLACET_LONG") else 50
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# Also what no JSON is, and what JSON has that nobody can write.
arguments = (
    st.none()
    | texts
    | st.sampled_from(
        ['{"a":1e999}', '{"a":-Infinity}', '{"a":"\\ud800"}', "[[[", '{"a":1.50}', '{"a" : 1}', "null"]
    )
    | st.dictionaries(texts, texts | st.floats() | st.integers(), max_size=3)
)
results = st.builds(
    ResultPart,
    call=st.just(1),
    id=texts,
    tool=texts,
    text=texts,
    outcome=st.sampled_from(["success", "failed", "denied", "interrupted"]),
)
prompts = st.lists(texts | st.builds(Picture, media_type=st.just("image/png"), data=st.binary()), max_size=3)


@settings(max_examples=EXAMPLES, deadline=None)
@given(prompts, st.lists(results, max_size=3))
def test_a_request_is_the_same_when_it_is_dumped_again(prompt: list[Any], told: list[ResultPart]) -> None:
    from placet_server.harness.provider import wire

    text = wire.request_text(prompt, told)
    assert text == wire.dump(wire.load([text])[0])
    assert "\n" not in text


@settings(max_examples=EXAMPLES, deadline=None)
@given(texts, texts, st.lists(st.tuples(st.sampled_from(["", "a", "b"]), texts, arguments), max_size=4))
def test_an_answer_is_the_same_when_it_is_dumped_again_and_can_be_sent(
    said: str, thought: str, calls: list[tuple[str, str, Any]]
) -> None:
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    from placet_server.harness.provider import wire

    parts: list[Any] = [
        ThinkingPart(content=thought, signature="c2ln+/==", provider_details={"a": 1.5}),
        TextPart(content=said),
        *(ToolCallPart(tool_name=tool, args=args, tool_call_id=id) for id, tool, args in calls),
    ]
    answer = wire.answer_of(ModelResponse(parts=parts, provider_details={"finish_reason": "stop"}), None)
    (again,) = wire.load([answer.text])
    assert answer.text == wire.dump(again)
    assert len(calls) == len({call.id for call in answer.calls})
    sent = [part for part in again.parts if isinstance(part, ToolCallPart)]
    assert [call.id for call in answer.calls] == [part.tool_call_id for part in sent]
    for part in sent:
        json.dumps(part.args_as_dict(), allow_nan=False, ensure_ascii=False).encode()
