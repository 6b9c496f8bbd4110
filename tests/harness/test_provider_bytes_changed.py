"""One changed byte of what a provider said breaks its signature: what is stored is what was heard, and what is sent
from it is the same whenever it is sent.
"""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import pytest

from placet.testing.model_servers import Call, ModelServer, Say, call
from placet.testing.port import free_port
from placet_server.harness.provider.adapter import CONTEXT_BYTES_MAX, Models, load
from placet_server.harness.provider.answer import Picture, TurnFailure
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.harness.replay import replay
from placet_server.harness.transcript import Stage
from placet_server.model.entry import Answered, EntryType, Opened, Requested, TurnProblem
from placet_server.model.entry_text import EntryRefused, entry_of, messages_of, of_text, to_text
from tests.harness.conversation import ALL_WIRES, WIRES, Journaled, asked, credentials, models_of

KEPT = Path(__file__).parent / "data"
# Everything that a writer of JSON may write in another way.
AWKWARD = 'é \u2028 \u2029 \U0001f600 "quoted" \\ / <b> & \t \u00a0'
SCRIPT = [
    Say(
        f"I look {AWKWARD}",
        call("orders-lookup", order=AWKWARD),
        Call("orders-lookup", '{"order" :  "A-1",\n "n": 1.0, "big": 1e3}'),
        Call("orders-lookup", '{"order": "cut o'),
        reasoning=f"thinking {AWKWARD}",
        signature="EpAB/+abc==",
    ),
    Say("", call("payments-refund", order="A-1", amount="1.00")),
    Say(f"Done {AWKWARD}"),
]


async def conversation(server: ModelServer, *, dies: bool) -> Journaled:
    models = models_of(server)
    run = Journaled(models, dies=dies)
    await run.run(f"refund A-1 {AWKWARD}")
    await models.close()
    return run


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_requests_are_the_same_bytes_whether_or_not_anything_is_remembered_between_them(
    wire: str,
) -> None:
    async with ALL_WIRES[wire](SCRIPT) as undisturbed, ALL_WIRES[wire](SCRIPT) as disturbed:
        one = await conversation(undisturbed, dies=False)
        other = await conversation(disturbed, dies=True)
        assert [request.body for request in undisturbed.requests] == [
            request.body for request in disturbed.requests
        ]
        assert [3, 3] == [len(undisturbed.requests), len(disturbed.requests)]
    assert [row.body for row in one.rows] == [row.body for row in other.rows]
    assert [row.digest for row in one.rows] == [row.digest for row in other.rows]
    assert Stage.DONE is one.state.stage


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_a_second_try_sends_the_bytes_of_the_first(wire: str) -> None:
    async with ALL_WIRES[wire](SCRIPT) as server:
        models = models_of(server)
        run = Journaled(models)
        await run.run("refund A-1")
        again = models.provider("test", "acme")
        for count in range(1, len(run.rows)):
            state = replay(run.rows[:count])
            if state.asked is not None and state.answer is None:
                await asked(again, state.messages())
        await models.close()
        bodies = [request.body for request in server.requests]
    assert bodies[:3] == bodies[3:]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_is_sent_as_it_was_given_also_when_it_is_read_again(wire: str) -> None:
    from placet_server.harness.provider import wire as messages

    data = bytes(range(256))
    text = messages.request_text(["look at this", Picture(media_type="image/png", data=data), "well?"])
    entry = entry_of(Requested(turn=1, messages=(text,)))
    async with WIRES[wire](SCRIPT) as server:
        models = models_of(server)
        await asked(models.provider("test", "acme"), messages_of(of_text(entry.type, entry.body)))
        await models.close()
        assert base64.b64encode(data) in server.requests[0].body


async def test_more_than_may_be_sent_is_not_sent() -> None:
    from placet_server.harness.provider import wire as messages

    async with WIRES["openai"](SCRIPT) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [messages.request_text(["x" * CONTEXT_BYTES_MAX])])
        await models.close()
        assert [] == server.requests
    assert TurnProblem.CONTEXT_TOO_LONG is failure.value.category


def test_what_stands_in_an_entry_is_cut_out_as_it_was_put_in() -> None:
    messages = ('{"a":1.50}', '{ "b" : "\\u00e9],\\"messages\\":[" }', "[]", '{"é":"\u2028\U0001f600"}', "")
    entry = entry_of(Requested(turn=3, messages=messages))
    assert messages == messages_of(of_text(entry.type, entry.body))
    assert entry.body == to_text(of_text(entry.type, entry.body))


def test_an_entry_whose_text_was_altered_in_length_is_refused() -> None:
    body = to_text(Answered(turn=1, messages=('{"a":1}', '{"b":2}')))
    for altered in (
        body.replace('"a"', '"ab"'),
        body.replace('"sizes":[7,7]', '"sizes":[7,8]'),
        body[:-1],
        "{}",
    ):
        with pytest.raises(EntryRefused):
            of_text(EntryType.ANSWERED, altered)


def test_what_a_later_release_adds_to_an_entry_is_passed_over() -> None:
    body = to_text(Opened(spec_digest="00", model="m")).replace(
        '"spec_digest"', '"colour":"red","spec_digest"'
    )
    assert Opened(spec_digest="00", model="m") == of_text(EntryType.OPENED, body)


def test_an_entry_larger_than_the_store_takes_is_refused() -> None:
    with pytest.raises(EntryRefused):
        entry_of(Answered(turn=1, messages=('"' + "x" * 3 * 2**20 + '"',)))


@pytest.mark.parametrize("wire", WIRES)
async def test_messages_stored_by_earlier_releases_are_sent_as_they_were(wire: str) -> None:
    """`data/*.jsonl` are kept: messages one a line as they were stored, and the request made of them. They are written
    anew only with a wire that is none of the earlier ones.
    """
    stored = (KEPT / f"{wire}.messages.jsonl").read_text().split("\n")[:-1]
    async with WIRES[wire](SCRIPT) as server:
        models = models_of(server)
        await asked(models.provider("test", "acme"), stored)
        await models.close()
        sent = server.requests[0].body
    assert (KEPT / f"{wire}.request.json").read_bytes() == sent


@pytest.mark.parametrize("kind", Kind)
async def test_no_kind_changes_what_was_loaded_and_is_told_again(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    await load()
    from placet_server.harness.provider import wire

    name = "anthropic" if kind in (Kind.ANTHROPIC, Kind.BEDROCK) else "openai"
    stored = (KEPT / f"{name}.messages.jsonl").read_text().split("\n")[:-1]
    loaded = wire.load(stored)
    before = [wire.dump(message) for message in loaded]
    entry = ModelEntry(
        name="test",
        kind=kind,
        model="model-x",
        base_url=f"http://127.0.0.1:{free_port()}",
        credential="" if kind in (Kind.BEDROCK, Kind.LOCAL) else "test",
        region="eu-central-1",
    )
    models = Models(lambda: Catalogue([entry]), credentials)
    problems = []
    try:
        await asked(models.provider("test", "acme"), stored)
    except TurnFailure as failure:
        problems.append(failure.category)
    await models.close()
    # There is nobody, and the request was made.
    assert problems == [TurnProblem.UNAVAILABLE] * (kind is not Kind.LOCAL)
    assert all(one is again for one, again in zip(loaded, wire.load(stored), strict=True))
    assert before == [wire.dump(message) for message in loaded]


async def test_openais_client_without_its_walk_sends_what_it_sends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import openai

    from placet_server.harness.provider import openai_client

    sent = []
    for kind in (openai.AsyncOpenAI, openai_client.PlainOpenAI):
        monkeypatch.setattr(openai_client, "PlainOpenAI", kind)
        async with WIRES["openai"](SCRIPT) as server:
            await conversation(server, dies=False)
            sent.append([request.body for request in server.requests])
    assert 3 == len(sent[0])
    assert sent[0] == sent[1]


def piece(delta: Any, **members: Any) -> dict[str, Any]:
    """Of an answer, as it is on the wire."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**whole, **members}


CALLED = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
AS_PROMISED = {
    "first": piece({"role": "assistant", "content": ""}),
    "text": piece({"content": AWKWARD}),
    "half a character": piece({"content": "\ud83d"}),
    "call": piece({"tool_calls": [CALLED, {"index": 1, "function": {"arguments": "{"}}]}),
    "index in words": piece({"tool_calls": [{**CALLED, "index": "0"}]}),
    "end": piece({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}]),
    "usage": piece(
        {}, choices=[], usage={**USAGE, "total_tokens": 7.0, "prompt_tokens_details": {"cached_tokens": 1}}
    ),
    "more": piece({"reasoning_content": "hm", "more": {"a": [1]}}, provider="p", usage=None),
}
OTHERWISE = {
    "nothing": {},
    "no index": piece({}, choices=[{"delta": {"content": "x"}}]),
    "no delta": piece({}, choices=[{"index": 0}]),
    "delta of null": piece(None),
    "choices of null": piece({}, choices=None),
    "created with a point": piece({"content": "x"}, created=1.0),
    "created in words": piece({"content": "x"}, created="1"),
    "no id": piece({"content": "x"}, id=None),
    "content of a number": piece({"content": 5}),
    "calls of a text": piece({"tool_calls": "f"}),
    "arguments of an object": piece({"tool_calls": [{**CALLED, "function": {"name": "f", "arguments": {}}}]}),
    "unknown finish": piece({}, choices=[{"index": 0, "delta": {}, "finish_reason": "eos"}]),
    "usage of words": piece({"content": "x"}, usage={**USAGE, "total_tokens": "many"}),
    "list": [piece({"content": "x"})],
}


@pytest.mark.parametrize("name", [*AS_PROMISED, *OTHERWISE])
def test_each_piece_of_an_answer_is_what_openais_client_makes_of_it(name: str) -> None:
    import openai
    from openai.types.chat import ChatCompletionChunk

    from placet_server.harness.provider.openai_client import PlainOpenAI, _chunk

    data: Any = {**AS_PROMISED, **OTHERWISE}[name]
    nothing: Any = None
    theirs, ours = (
        kind(api_key="none")._process_response_data(
            data=copy.deepcopy(data), cast_to=ChatCompletionChunk, response=nothing
        )
        for kind in (openai.AsyncOpenAI, PlainOpenAI)
    )
    assert (name in AS_PROMISED) == (_chunk(data) is not None)
    assert (type(theirs), repr(theirs)) == (type(ours), repr(ours))
    assert theirs == ours
