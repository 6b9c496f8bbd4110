"""The scripted servers are as strict as providers are, know a request again, and can outlive who asks them."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from placet.testing.model_script import read, written
from placet.testing.model_servers import (
    KEY,
    Call,
    Drop,
    Fail,
    FailInStream,
    ModelServer,
    OpenAIServer,
    Say,
    Stall,
    Step,
    Truncate,
    call,
)
from tests.harness.conversation import WIRES

USER = {"role": "user", "content": "hi"}
CALLED = {
    "openai": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}}],
    },
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}],
    },
}
TOLD = {
    "openai": {"role": "tool", "tool_call_id": "a", "content": "ok"},
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}]},
}


def _post(server: ModelServer, messages: list[Any], key: str = KEY) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {key}", "anthropic-version": "2023-06-01"}
    body = json.dumps({"model": "m", "messages": messages, "max_tokens": 9}).encode()
    request = urllib.request.Request(
        server.base_url + server._path.removeprefix(server._prefix), body, headers
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def post(server: ModelServer, *messages: Any, key: str = KEY) -> int:
    return (await asyncio.to_thread(_post, server, list(messages), key))[0]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_conversation_that_a_provider_refuses_is_refused(wire: str) -> None:
    called, told = CALLED[wire], TOLD[wire]
    async with WIRES[wire]([Say("one"), Say("two")]) as server:
        assert 200 == await post(server, USER)
        assert 200 == await post(server, USER, called, told)
        assert 400 == await post(server, USER, called)
        assert 400 == await post(server, USER, called, USER)
        assert 400 == await post(server, USER, called, told, told)
        assert 400 == await post(server, USER, told)
        assert 401 == await post(server, USER, key="another")


async def test_a_request_is_known_again_by_its_bytes_and_a_turn_by_its_answers() -> None:
    async with OpenAIServer([Fail(503), Say("one"), Fail(429), Say("two")]) as server:
        other = {"role": "user", "content": "another"}
        said = {"role": "assistant", "content": "one"}
        statuses = [await post(server, USER), await post(server, other), await post(server, USER)]
        assert [503, 503, 200] == statuses
        assert [429, 200, 200] == [await post(server, USER, said) for _ in range(3)]
        assert [1, 1, 2] == [request.number for request in server.requests_of(1)]
        assert 400 == await post(server, USER, said, said)


def test_a_script_is_read_as_it_was_written() -> None:
    script: list[Step] = [
        Fail(429, "1", {"a": 1}),
        FailInStream("server_error"),
        Truncate(5, clean=False),
        Stall(1.5, 3),
        Drop(),
        Say("x", call("t", a=1), Call("t", "", id="i"), reasoning="r", finish="length", usage=None),
    ]
    again = read(written(script))
    assert script[:-1] == again[:-1]
    assert vars(script[-1]) == vars(again[-1])


def test_a_script_says_which_turn_each_step_is_of() -> None:
    with pytest.raises(ValueError, match="Say"):
        OpenAIServer([Say("one"), Fail(503)])


async def test_a_server_of_its_own_process_keeps_what_came_until_its_input_ends() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "placet.testing.model_servers",
        "openai",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(written([Say("one")]).encode() + b"\n")
    here = OpenAIServer([Say("one")], port=int(await process.stdout.readline()))
    assert 200 == await post(here, USER)
    recorded = await asyncio.to_thread(_recorded, f"http://127.0.0.1:{here.port}/recorded")
    assert [(1, 1)] == [(request["turn"], request["number"]) for request in recorded]
    process.stdin.close()
    assert 0 == await process.wait()


def _recorded(address: str) -> Any:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
        return json.load(answer)
