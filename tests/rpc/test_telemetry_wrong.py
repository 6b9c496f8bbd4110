"""Spans, metrics and log lines say what happened, also when it went wrong, and nothing that is secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.errors import NotFound, StoreUnavailable
from placet_server.rpc.tracing import Tracing
from placet_server.telemetry import logs
from placet_server.telemetry.environment import ProtocolRefused, wanted
from placet_server.telemetry.exposition import registry_of
from placet_server.telemetry.metric import Metrics
from placet_server.telemetry.otlp import MetricsSender
from tests.rpc.support import ACTION_ID, Chosen, Setup, bearer, refusal, send_bytes, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01"),)
UNSAMPLED = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-00"),)


class Spans:
    def __init__(self, ratio: float = 0.0) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider, ratio)

    @property
    def finished(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()


async def fail(rpc: Any) -> None:
    raise RuntimeError("secret")


async def not_found(rpc: Any) -> None:
    raise NotFound(kind="action", name="secret")


async def fail_the_store(rpc: Any) -> None:
    raise StoreUnavailable(detail="secret")


async def cancel(rpc: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("behaviour", "number", "status", "reason"),
    [
        (None, 0, StatusCode.UNSET, None),
        (not_found, 5, StatusCode.UNSET, "NOT_FOUND"),
        (fail, 13, StatusCode.ERROR, "INTERNAL"),
        (cancel, 13, StatusCode.ERROR, "INTERNAL"),
        (fail_the_store, 14, StatusCode.ERROR, "STORE_UNAVAILABLE"),
    ],
    ids=["ok", "mapped", "uncaught", "cancelled from within", "server at fault"],
)
async def test_a_span_has_the_status_that_the_caller_got(
    behaviour: Any, number: int, status: StatusCode, reason: str | None
) -> None:
    spans = Spans()
    async with serving(Setup(behaviour=behaviour, tracing=spans.tracing)) as running:
        call = running.runtime.GetCaller(pb.GetCallerRequest(), metadata=(*bearer(), *SAMPLED))
        await (refusal(call) if behaviour else call)
    (span,) = spans.finished
    assert span.attributes is not None
    assert (number, reason) == (span.attributes["rpc.grpc.status_code"], span.attributes.get("placet.reason"))
    assert status == span.status.status_code
    assert int(TRACE, 16) == (span.context and span.context.trace_id)
    assert ("placet.v1.RuntimeService/GetCaller", ()) == (span.name, tuple(span.events))
    assert ("placet.v1.RuntimeService", "GetCaller", "grpc") == tuple(
        span.attributes[f"rpc.{name}"] for name in ("service", "method", "system")
    )
    assert (reason if status is StatusCode.ERROR else None) == span.status.description
    assert "secret" not in span.to_json()


async def test_a_stream_that_is_refused_half_way_has_one_span_with_its_status() -> None:
    spans = Spans()

    class Broken(Chosen):
        async def watch_action(self, rpc: Any) -> AsyncIterator[Any]:
            rpc.action_id = ACTION_ID
            yield pb.WatchActionResponse()
            raise StoreUnavailable(detail="secret")

    async with serving(Setup(servicer=Broken(), tracing=spans.tracing)) as running:
        request = pb.WatchActionRequest(action_id=ACTION_ID)
        call = running.runtime.WatchAction(request, metadata=(*bearer(), *SAMPLED))
        got = [await call.read()]
        refused = await refusal(call.read())
    assert ([pb.WatchActionResponse()], grpc.StatusCode.UNAVAILABLE) == (got, refused.code)
    (span,) = spans.finished
    assert span.attributes is not None
    assert (14, "STORE_UNAVAILABLE", ACTION_ID) == tuple(
        span.attributes[name] for name in ("rpc.grpc.status_code", "placet.reason", "placet.action_id")
    )
    assert (StatusCode.ERROR, ()) == (span.status.status_code, tuple(span.events))


@pytest.mark.parametrize(
    ("seconds", "code", "status"),
    [(None, 1, StatusCode.UNSET), (0.3, 4, StatusCode.ERROR)],
    ids=["cancelled", "deadline"],
)
async def test_a_call_that_its_caller_leaves_ends_its_span(
    seconds: float | None, code: int, status: StatusCode
) -> None:
    spans, entered, left = Spans(), asyncio.Event(), asyncio.Event()

    async def wait(rpc: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    async with serving(Setup(behaviour=wait, tracing=spans.tracing)) as running:
        call = running.runtime.GetCaller(
            pb.GetCallerRequest(), metadata=(*bearer(), *SAMPLED), timeout=seconds
        )
        await entered.wait()
        if seconds is None:
            call.cancel()
        await left.wait()
    (span,) = spans.finished
    assert span.attributes is not None
    assert (code, status) == (span.attributes["rpc.grpc.status_code"], span.status.status_code)


@pytest.mark.parametrize(
    ("headers", "ratio", "count"),
    [
        (SAMPLED, 0.0, 1),
        (UNSAMPLED, 1.0, 0),
        ((), 0.0, 0),
        ((), 1.0, 1),
        ((("traceparent", "garbage"),), 1.0, 1),
        ((("traceparent", "garbage"),), 0.0, 0),
    ],
    ids=["caller wants", "caller does not", "dice say no", "dice say yes", "garbage yes", "garbage no"],
)
async def test_a_call_is_traced_if_its_caller_or_the_dice_say_so(
    headers: Any, ratio: float, count: int
) -> None:
    spans = Spans(ratio)
    inside = []

    async def see(rpc: Any) -> None:
        inside.append(get_current_span().is_recording())

    async with serving(Setup(behaviour=see, tracing=spans.tracing)) as running:
        await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=(*bearer(), *headers))
    assert count == len(spans.finished)
    assert [bool(count)] == inside


async def test_calls_are_counted_by_method_and_code_and_read_by_prometheus() -> None:
    setup = Setup(behaviour=not_found)
    setup.metrics.add_gauge("placet_calls_in_flight", "Calls in flight.", lambda: 3)
    setup.metrics.refusals.add('a"b\\\n')
    async with serving(setup) as running:
        await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
        await refusal(send_bytes(running.channel, "/x/y"))
    text = generate_latest(registry_of(setup.metrics)).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counts = {
        (sample.labels["method"], sample.labels["code"]): sample.value
        for sample in families["placet_rpc_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert {
        ("/placet.v1.RuntimeService/GetCaller", "NOT_FOUND"): 1,
        ("unknown", "UNIMPLEMENTED"): 1,
    } == counts
    assert 3 == families["placet_calls_in_flight"].samples[0].value
    assert 'a"b\\\n' == families["placet_refusals"].samples[0].labels["reason"]


class Collected(MetricExporter):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:
        self.sent.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None: ...


def test_metrics_are_sent_once_more_at_the_end_and_can_be_encoded() -> None:
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    metrics, exporter = Metrics(), Collected()
    metrics.rpcs.of("/m", "OK").observe(0.2)
    metrics.refusals.add("OVERLOADED")
    metrics.model_seconds.of("chat", "openai", "m", "").observe(0.2)
    metrics.add_gauge("g", "G.", lambda: 1.5)
    sender = MetricsSender(metrics, exporter)
    sender.start()
    sender.close()
    sent = str(encode_metrics(exporter.sent[-1]))
    assert all(text in sent for text in ("placet_rpc_seconds", "OVERLOADED", "1.5", "gen_ai.request.model"))
    # By the conventions it is not there unless there was an error.
    assert "error.type" not in sent


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_nothing_is_exported_unless_the_environment_says_where_to(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == wanted("TRACES")


def test_a_protocol_that_is_not_spoken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with pytest.raises(ProtocolRefused):
        wanted("TRACES")


class Ids:
    action_id = "a1"
    trace_id = "t1"


@pytest.mark.parametrize("formatter", [logs.JsonLine(), logs.TextLine()], ids=["json", "text"])
def test_a_log_line_carries_the_ids_of_its_call_and_stays_one_line(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("placet", logging.INFO, "", 0, "what\nforged: %s", ("x",), None)
    token = logs.current.set(Ids())
    try:
        logs._add_ids(record)
    finally:
        logs.current.reset(token)
    line = formatter.format(record)
    assert "\n" not in line
    assert all(each in line for each in ("a1", "t1", "forged: x"))
    if isinstance(formatter, logs.JsonLine):
        assert "what\nforged: x" == json.loads(line)["message"]
