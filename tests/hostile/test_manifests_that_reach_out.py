"""Manifests that name a schema elsewhere, say a thing twice, or take a name that is not theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from placet.v1 import agent_pb2
from placet.v1 import capability_pb2 as pb
from placet.v1 import catalog_service_pb2 as catalog
from tests.hostile.served import Client, Served
from tests.rpc.support import Refusal, refusal


def capability(name: str = "out.tool", **changes: Any) -> pb.Capability:
    fields: dict[str, Any] = {
        "name": name,
        "version": "1",
        "kind": pb.CAPABILITY_KIND_TOOL,
        "contract": pb.Contract(effect=pb.EFFECT_CLASS_READ),
    }
    return pb.Capability(**(fields | changes))


def admit(*capabilities: pb.Capability, **changes: Any) -> catalog.AdmitManifestRequest:
    manifest = pb.Manifest(name="out", version="1", capabilities=capabilities)
    return catalog.AdmitManifestRequest(manifest=manifest, **changes)


async def refused_whole(client: Client, request: catalog.AdmitManifestRequest, code: str) -> Refusal:
    """The manifest is refused, and validate_only finds the same, this problem among them, without refusing."""
    refused = await refusal(client.call("AdmitManifest", request))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MANIFEST_REFUSED") == (refused.code, refused.reason)
    assert 1 <= len(refused.bad_requests[0].field_violations) <= 16
    looked = catalog.AdmitManifestRequest(manifest=request.manifest, validate_only=True)
    answer = await client.call("AdmitManifest", looked)
    assert code in [problem.code for problem in answer.problems]
    assert str(len([p for p in answer.problems if not p.warning])) == refused.infos[0].metadata["problems"]
    return refused


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, list[str]]]:
    """A port that notes who dials it."""
    dialled: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(str(writer.get_extra_info("peername")))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], dialled


async def test_no_reference_that_leaves_the_schema_is_followed(server: Served, client: Client) -> None:
    async with listener() as (port, dialled), server.unharmed():
        for reference in (
            f"http://127.0.0.1:{port}/schema.json",
            f"http://127.0.0.1:{port}/schema.json#/$defs/a",
            f"//127.0.0.1:{port}/schema",
            "file:///etc/passwd",
            "file:///dev/zero",
            "/etc/passwd",
            "../schema.json",
            "urn:uuid:deadbeef-dead-4eef-8eef-deadbeefdead",
            "ftp://127.0.0.1/a",
            "data:application/json,{}",
        ):
            for keyword in ("$ref", "$dynamicRef"):
                for schema in (
                    {keyword: reference},
                    {"properties": {"a": {"items": {keyword: reference}}}},
                    {"$id": f"http://127.0.0.1:{port}/base/", "allOf": [{keyword: reference}]},
                ):
                    text = json.dumps(schema)
                    refused = await refused_whole(
                        client, admit(capability(input_schema_json=text)), "input_schema_refused"
                    )
                    assert "root:" not in str(refused.status)
                    await refused_whole(
                        client, admit(capability(output_schema_json=text)), "output_schema_refused"
                    )
        foreign = json.dumps({"$schema": f"http://127.0.0.1:{port}/meta", "type": "object"})
        await refused_whole(client, admit(capability(input_schema_json=foreign)), "input_schema_refused")
    assert [] == dialled


def agent(name: str = "out.agent", **spec: Any) -> pb.Capability:
    return capability(
        name,
        kind=pb.CAPABILITY_KIND_AGENT,
        contract=pb.Contract(effect=pb.EFFECT_CLASS_COMPOSED),
        agent=agent_pb2.AgentSpec(**({"model": "fast"} | spec)),
    )


async def test_no_agent_says_where_its_model_is(server: Served, client: Client) -> None:
    async with listener() as (port, dialled), server.unharmed():
        for model in (
            f"http://127.0.0.1:{port}/v1",
            f"openai://127.0.0.1:{port}",
            f"//127.0.0.1:{port}",
            "../model",
            "/etc/passwd",
            "file:///etc/passwd",
            "FAST",
            "",
        ):
            refused = await refusal(client.call("AdmitManifest", admit(agent(model=model))))
            assert "MALFORMED_REQUEST" == refused.reason, model
            assert "manifest.capabilities[0].agent.model" in str(refused.bad_requests)
        # What is inside instructions is text, and is never looked up.
        links = f"See http://127.0.0.1:{port}/ and {{{{x}}}} and file:///etc/passwd."
        answer = await client.call("AdmitManifest", admit(agent(instructions=links), validate_only=True))
        assert ["model_unknown"] == [problem.code for problem in answer.problems if problem.warning]
        assert 1 == len(answer.problems)
    assert [] == dialled


async def test_agents_that_are_too_much_or_lead_nowhere_are_refused_whole(
    server: Served, client: Client
) -> None:
    names = [f"out.n{index}" for index in range(64)]
    everyone = [
        agent(name, delegates=[agent_pb2.DelegateChoice(agent=each) for each in names[:16]]) for name in names
    ]
    async with server.unharmed():
        await refused_whole(client, admit(*everyone), "delegates_cycle")
        tool = agent_pb2.ToolChoice(name="out.nothing", scopes=["s" * 128])
        refused = await refused_whole(
            client, admit(*(agent(name, tools=[tool]) for name in names)), "tool_unknown"
        )
        assert "64" == refused.infos[0].metadata["problems"]
        for reserved in ("placet.catalog.admit", "placet.*"):
            tool = agent_pb2.ToolChoice(name=reserved)
            await refused_whole(client, admit(agent(tools=[tool])), "tool_reserved")
        await refused_whole(client, admit(agent(budget=agent_pb2.Budget(turns=51))), "budget_above_server")
        await refused_whole(
            client, admit(capability(agent=agent_pb2.AgentSpec(model="m"))), "agent_unexpected"
        )
        own = agent()
        own.input_schema_json = '{"type":"object"}'
        await refused_whole(client, admit(own), "agent_input_schema")
        nul = await refusal(client.call("AdmitManifest", admit(agent(instructions="a\0b"))))
        assert nul.reason in ("JSON_NOT_INTEROPERABLE", "MALFORMED_REQUEST")


async def test_nothing_that_is_no_number_gets_into_an_agent(server: Served, client: Client) -> None:
    async with server.unharmed():
        for number in (float("nan"), float("inf"), -1.0, 1e308):
            for settings in (
                agent_pb2.ModelSettings(temperature=number),
                agent_pb2.ModelSettings(top_p=number),
            ):
                refused = await refusal(client.call("AdmitManifest", admit(agent(settings=settings))))
                assert "MALFORMED_REQUEST" == refused.reason, number


async def test_a_capability_said_twice_is_refused(server: Served, client: Client) -> None:
    async with server.unharmed():
        refused = await refused_whole(client, admit(capability(), capability()), "capability_duplicate")
    named = {(v.field, v.reason) for v in refused.bad_requests[0].field_violations}
    assert ("manifest.capabilities[1]", "capability_duplicate") in named


async def test_hazards_and_rules_that_contradict_are_all_named(server: Served, client: Client) -> None:
    bad = [
        capability(f"out.t{n}", contract=pb.Contract(effect=pb.EFFECT_CLASS_READ, hazards=[pb.HAZARD_WRITE]))
        for n in range(100)
    ]
    async with server.unharmed():
        refused = await refused_whole(client, admit(*bad), "read_with_write_hazard")
    assert 100 <= int(refused.infos[0].metadata["problems"])


@pytest.mark.parametrize("name", ["hostile.echo", "hostile.new", "placet.catalog.admit"])
async def test_a_local_name_is_not_taken(server: Served, client: Client, name: str) -> None:
    before = await client.call("GetCapability", catalog.GetCapabilityRequest(name="hostile.echo"))
    request = admit(capability(name))
    if name == "hostile.new":
        # The manifest's own name is the local app's.
        request.manifest.name = "hostile"
    refused = await refusal(client.call("AdmitManifest", request))
    assert refused.reason in ("MANIFEST_REFUSED", "MALFORMED_REQUEST"), name
    assert before == await client.call("GetCapability", catalog.GetCapabilityRequest(name="hostile.echo"))


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        "1",
        '{"type":"objekt"}',
        '{"pattern":"("}',
        '{"a":1,"a":2}',
        '{"minimum":NaN}',
        "[" * 1000,
        '{"not":' * 100 + "{}" + "}" * 100,
        '{"$ref":"#/$defs/none"}',
        '{"$anchor":"a","$ref":"#b"}',
        '{"\\u0000":{}}',
    ],
)
async def test_a_schema_that_is_none_is_refused(server: Served, client: Client, schema: str) -> None:
    async with server.unharmed():
        await refused_whole(client, admit(capability(input_schema_json=schema)), "input_schema_refused")


async def test_a_name_that_no_manifest_may_have_is_malformed(server: Served, client: Client) -> None:
    async with server.unharmed():
        for name in ("", "Out", "out tool", "out..tool", "a" * 129, "out.\x00", "../out"):
            refused = await refusal(client.call("AdmitManifest", admit(capability(name))))
            assert refused.reason in ("MALFORMED_REQUEST", "MANIFEST_REFUSED"), name
        for title in ("a\x00b",):
            refused = await refusal(
                client.call("AdmitManifest", admit(capability(presentation=pb.Presentation(title=title))))
            )
            assert refused.reason in ("MALFORMED_REQUEST", "MANIFEST_REFUSED")


async def test_a_digest_that_is_none_is_malformed(server: Served, client: Client) -> None:
    async with server.unharmed():
        for digest in ("X" * 64, "0" * 63, "0" * 65, "\n" + "0" * 64):
            request = admit(capability(), expected_digest=digest)
            assert "MALFORMED_REQUEST" == (await refusal(client.call("AdmitManifest", request))).reason
