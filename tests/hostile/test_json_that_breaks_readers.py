"""Texts that are no JSON, JSON that readers understand differently, and JSON that costs more than it says."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.hostile.served import Client, Served
from tests.rpc.support import refusal

MALFORMED = [
    "",
    " ",
    "{",
    "[1,]",
    "{'a':1}",
    "nul",
    "\ufeff{}",
    "{}{}",
    '"\t"',
    "[01]",
    "[+1]",
    "//",
    '{"a"}',
]
NOT_INTEROPERABLE = [
    '{"a":1,"a":1}',
    '{"a":{"b":1,"\\u0062":2}}',
    '["\\ud800"]',
    '["\\udc00\\ud800"]',
    '["\\u0000"]',
    '{"\\u0000":1}',
    "[9007199254740993]",
    "[1e400]",
    "[0.1000000000000000055511151231257827]",
    "[" * 65 + "]" * 65,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 100_000 + "1" + "}" * 100_000,
]


def request(capability: str, input_json: str, **options: Any) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(
        invocation=action_pb2.Invocation(
            capability=capability, input_json=input_json, options=action_pb2.InvocationOptions(**options)
        )
    )


@pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])
async def test_every_text_that_is_no_interoperable_json_is_refused_and_says_where(
    server: Served, client: Client, rpc: str
) -> None:
    made = pb.ExecuteRequest if rpc == "Execute" else pb.ExecuteStreamRequest
    async with server.unharmed():
        for texts, reasons in (
            (MALFORMED, ("MALFORMED_JSON",)),
            (NOT_INTEROPERABLE, ("JSON_NOT_INTEROPERABLE",)),
        ):
            for text in texts:
                asked = made(invocation=request("hostile.any", text).invocation)
                refused = await refusal(client.call(rpc, asked))
                assert grpc.StatusCode.INVALID_ARGUMENT == refused.code
                assert refused.reason in reasons, (text[:40], refused.reason, refused.message)
                assert "input_json" == refused.infos[0].metadata["field"]


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[-Infinity]", "[1" + "0" * 5000 + "]", "[" * 100_000])
async def test_numbers_and_brackets_without_end_are_refused(
    server: Served, client: Client, text: str
) -> None:
    async with server.unharmed():
        refused = await refusal(client.call("Execute", request("hostile.any", text)))
    assert refused.reason in ("MALFORMED_JSON", "JSON_NOT_INTEROPERABLE")


@pytest.mark.parametrize(
    ("mebibytes", "reason"), [(2, "PAYLOAD_TOO_LARGE"), (10, "PAYLOAD_TOO_LARGE"), (17, "MALFORMED_REQUEST")]
)
async def test_too_large_a_payload_is_refused_by_its_size(
    server: Served, client: Client, mebibytes: int, reason: str
) -> None:
    text = '"' + "a" * mebibytes * 2**20 + '"'
    async with server.unharmed():
        refused = await refusal(client.call("Execute", request("hostile.any", text)))
    assert (grpc.StatusCode.INVALID_ARGUMENT, reason) == (refused.code, refused.reason)


async def test_more_than_the_transport_takes_is_refused_by_the_transport(
    server: Served, client: Client
) -> None:
    text = '"' + "a" * 21 * 2**20 + '"'
    async with server.unharmed():
        refused = await refusal(client.call("Execute", request("hostile.any", text)))
    # grpc's own answer, before any layer: no reason, and so it says nothing of any action.
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, []) == (refused.code, refused.infos)


async def test_a_schema_violation_names_at_most_sixteen_places(server: Served, client: Client) -> None:
    lines = ",".join('{"item":"%s","amount":0}' % ("√" * 300) for _ in range(40))
    asked = request("hostile.order", f'{{"lines":[{lines}]}}', idempotency_key="k")
    async with server.unharmed():
        refused = await refusal(client.call("Execute", asked))
    assert "INPUT_SCHEMA_VIOLATION" == refused.reason
    named = refused.bad_requests[0].field_violations
    assert 1 <= len(named) <= 16
    assert all(v.field.startswith("/lines/") for v in named)
    assert "16" == refused.infos[0].metadata["violations"]


async def test_hostile_member_names_come_back_as_paths_and_nothing_more(
    server: Served, client: Client
) -> None:
    names = ["~/" * 200, "\\u202e\\u0007" * 100, "%s%n{0}" * 50]
    members = ",".join(f'"{name}":1' for name in names)
    asked = request("hostile.order", f'{{"lines":[{{{members}}}]}}', idempotency_key="k")
    async with server.unharmed():
        refused = await refusal(client.call("Execute", asked))
    assert "INPUT_SCHEMA_VIOLATION" == refused.reason


@pytest.mark.parametrize(
    "name", ["none", "HOSTILE.ECHO", "hostile.echo ", "../echo", "a" * 128, "√", "'; drop"]
)
@pytest.mark.parametrize("version", ["", "2", "v" * 32])
async def test_a_capability_that_is_not_there_is_not_found(
    server: Served, client: Client, name: str, version: str
) -> None:
    invocation = action_pb2.Invocation(capability=name, version=version, input_json="{}")
    async with server.unharmed():
        refused = await refusal(client.call("Execute", pb.ExecuteRequest(invocation=invocation)))
    assert (grpc.StatusCode.NOT_FOUND, "CAPABILITY_NOT_FOUND") == (refused.code, refused.reason)
