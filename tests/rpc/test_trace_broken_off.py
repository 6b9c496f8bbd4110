"""A caller's trace goes on through the server into the handler, and nobody's nonsense does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from placet import App, Context, SyncContext
from placet.v1 import runtime_service_pb2 as pb
from placet_server.telemetry.tracing import incoming_trace, is_sampled
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, invocation, running

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"
VENDOR = "vendor=1"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What an OpenTelemetry collector is for the exporter."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    async def Export(self, request: Any, context: Any) -> Any:
        self.spans += [
            span
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def collecting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    collector, server = Collector(), grpc.aio.server()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{port}")
    try:
        yield collector
    finally:
        await server.stop(None)


def tracer() -> App:
    app = App("tracer")

    @app.tool("trace.see", "read")
    async def see(context: Context) -> dict[str, str]:
        return dict(context.trace)

    @app.tool("trace.see_in_thread", "read")
    def see_in_thread(context: SyncContext) -> dict[str, str]:
        return dict(context.trace)

    return app


async def seen(client: Client, capability: str, headers: dict[str, str]) -> Any:
    request = pb.ExecuteRequest(invocation=invocation(capability, {}))
    metadata = (*client.metadata, *headers.items())
    return json.loads((await client.runtime.Execute(request, metadata=metadata)).action.output_json)


@pytest.mark.parametrize("capability", ["trace.see", "trace.see_in_thread"])
async def test_a_handler_continues_the_trace_that_is_exported(
    capability: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting(monkeypatch) as collector:
        async with running(config_of(database.dsn, tmp_path), [tracer()]) as client:
            trace = await seen(client, capability, {"traceparent": SAMPLED, "tracestate": VENDOR})
            unsampled = await seen(client, capability, {"traceparent": UNSAMPLED, "tracestate": VENDOR})
        (span,) = collector.spans
    assert (TRACE, SPAN) == (span.trace_id.hex(), span.parent_span_id.hex())
    assert {"traceparent": f"00-{TRACE}-{span.span_id.hex()}-01", "tracestate": VENDOR} == trace
    assert {"traceparent": UNSAMPLED, "tracestate": VENDOR} == unsampled


async def test_a_streamed_action_continues_the_trace_too(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting(monkeypatch) as collector:
        async with running(config_of(database.dsn, tmp_path), [tracer()]) as client:
            request = pb.ExecuteStreamRequest(invocation=invocation("trace.see", {}))
            metadata = (*client.metadata, ("traceparent", SAMPLED))
            events = [event async for event in client.runtime.ExecuteStream(request, metadata=metadata)]
            action_id = events[0].event.action_id
            found = await client.runtime.GetAction(
                pb.GetActionRequest(action_id=action_id), metadata=client.metadata
            )
        span = next(span for span in collector.spans if span.name.endswith("/ExecuteStream"))
    assert f"00-{TRACE}-{span.span_id.hex()}-01" in found.action.output_json
    attributes = {each.key: each.value for each in span.attributes}
    assert action_id == attributes["placet.action_id"].string_value


async def test_without_an_exporter_the_callers_headers_are_handed_on_as_they_are(
    database: Database, tmp_path: Path
) -> None:
    async with running(config_of(database.dsn, tmp_path), [tracer()]) as client:
        assert {"traceparent": SAMPLED} == await seen(client, "trace.see", {"traceparent": SAMPLED})
        assert {} == await seen(client, "trace.see", {"traceparent": "garbage", "tracestate": VENDOR})
        assert {} == await seen(client, "trace.see", {})


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        (SAMPLED, SAMPLED),
        (f"cc-{TRACE}-{SPAN}-01", SAMPLED),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", SAMPLED),
        (f"{SAMPLED}-x", None),
        (f"{SAMPLED}0", None),
        (f"cc-{TRACE}-{SPAN}-012", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"{SAMPLED}\n", None),
        ("garbage-01", None),
        ("", None),
    ],
)
def test_only_a_well_formed_parent_is_believed(parent: str, expected: str | None) -> None:
    trace = incoming_trace(parent, VENDOR)
    assert ({} if expected is None else {"traceparent": expected, "tracestate": VENDOR}) == trace
    assert (expected is not None) == is_sampled(trace, ratio=0.0)


def test_what_a_vendor_adds_is_bounded_and_worth_nothing_alone() -> None:
    assert {"traceparent": SAMPLED} == incoming_trace(SAMPLED, "a" * 513)
    assert {} == incoming_trace(None, VENDOR)


def test_nothing_of_the_exporters_is_imported_unless_asked_for() -> None:
    program = (
        "import sys, placet_server.app\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'prometheus_client')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
