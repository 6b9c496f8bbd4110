"""Spans of a run say what happened, once, in one trace, whoever ran which part of it; and nothing that is secret."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import generate_latest

from placet.agent import Budget, ModelSettings
from placet.context import Context
from placet.testing.model_servers import KEY, Fail, OpenAIServer, Say, Stall, Step, Truncate, call
from placet_server.core.admission.execute import execute
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.recovery.rescue import rescue
from placet_server.harness.tracing import RunTracing
from placet_server.model.lifecycle import ActionState
from placet_server.store import run as runs
from placet_server.telemetry.exposition import registry_of
from placet_server.telemetry.metric import Metrics
from placet_server.telemetry.observer import CountingObserver
from placet_server.telemetry.span_ids import SpanIds
from tests.core.agents import ASKED, KEY_VARIABLE, TOOLS, Shop, asked, open_shop
from tests.core.kernels import call_of, declare_dead, dispatch, put, read, until, work_off
from tests.core.parking import parked, steps
from tests.core.people import ANNA, APPROVE, vote
from tests.core.scripted import age
from tests.postgres import Database

SECRET = "4111-1111"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


class Spans:
    """All that one server after another has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    def tracing(self, ratio: float = 1.0, *, shows_content: bool = False) -> RunTracing:
        provider = TracerProvider(id_generator=(ids := SpanIds()))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        return RunTracing(provider, ids, ratio, shows_content=shows_content)

    def named(self, begin: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(begin)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def trace_ids(self) -> set[str]:
        return {f"{span.context.trace_id:032x}" for span in self.exporter.get_finished_spans()}


class Seeing(Shop):
    """With a tool that tells its trace."""

    def __init__(self, **options: Any) -> None:
        super().__init__(tools=(*TOOLS, "shop.see"), **options)
        self.traces: list[str] = []

        @self.app.tool("shop.see", "read")
        async def see(context: Context, order: str) -> str:
            self.traces.append(context.trace.get("traceparent", ""))
            return f"seen {order}"


def of(span: ReadableSpan, *names: str) -> list[Any]:
    assert span.attributes is not None
    return [span.attributes.get(name) for name in names]


def id_of(span: ReadableSpan) -> int:
    return int(span.context.span_id)


def above(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


async def test_a_run_is_one_trace_of_its_stretches_requests_and_calls_and_goes_on_elsewhere(
    database: Database,
) -> None:
    shop, spans = Seeing(), Spans()
    pay = Say("I pay.", call("shop-pay", order="A-1"), call("shop-see", order="A-2"))
    async with OpenAIServer([pay, Say("Over.")]) as server:
        async with open_shop(database.dsn, shop, server, tracing=spans.tracing()) as kernel:
            waiting = await asked(kernel)
            shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
        async with open_shop(database.dsn, shop, server, tracing=spans.tracing(0.0)) as kernel:
            await vote(kernel, shown.waits[0].approval_id, ANNA, APPROVE)
            await work_off(kernel)
            ended = await read(kernel, waiting.action_id)
            children = await steps(kernel, waiting.action_id)
    names = Counter(span.name for span in spans.exporter.get_finished_spans())
    assert {
        "invoke_agent shop.helper": 2,
        "chat model-x": 2,
        "execute_tool shop.pay": 1,
        "execute_tool shop.see": 1,
    } == names
    assert (1, ActionState.SUCCEEDED) == (len(spans.trace_ids), ended.state)
    first, second = spans.named("invoke_agent")
    assert (None, id_of(first)) == (first.parent, above(second))
    assert ([], [id_of(first)]) == ([*first.links], [link.context.span_id for link in second.links])
    assert [["parked", 100], ["ended", 100]] == [
        of(each, "placet.stretch", "gen_ai.usage.input_tokens") for each in (first, second)
    ]
    assert [id_of(first), id_of(second)] == [above(span) for span in spans.named("chat")]
    # What a step does is below its call, whose span is made later, once.
    see = spans.one("execute_tool shop.see")
    (trace_id,) = spans.trace_ids
    assert [f"00-{trace_id}-{id_of(see):016x}-01"] == shop.traces
    paid = {span.name: span for span in spans.named("execute_tool")}["execute_tool shop.pay"]
    child = next(each for each in children if each.capability == "shop.pay")
    assert (child.create_time_us * 1000, (child.settle_time_us or 0) * 1000) == (
        paid.start_time,
        paid.end_time,
    )
    assert (SpanKind.INTERNAL, "function", "shop.pay", child.action_id, "SUCCEEDED") == (
        paid.kind,
        *of(paid, "gen_ai.tool.type", "gen_ai.tool.name", "placet.action_id", "placet.outcome"),
    )


async def test_a_request_says_what_it_asked_for_and_what_came(database: Database) -> None:
    shop, spans = Shop(settings=ModelSettings(max_tokens=77)), Spans()
    script, tracing = [Say("I stop", finish="length", cached=3)], spans.tracing()
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, shop, server, tracing=tracing) as kernel,
    ):
        await asked(kernel)
    chat = spans.named("chat model-x")[0]
    assert (SpanKind.CLIENT, StatusCode.UNSET) == (chat.kind, chat.status.status_code)
    assert ["chat", "openai", "model-x", 77, ("length",), 100, 20, 3, "127.0.0.1"] == of(
        chat,
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.request.max_tokens",
        "gen_ai.response.finish_reasons",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "server.address",
    )


@pytest.mark.parametrize(
    ("script", "options", "chats", "stretch"),
    [
        ([Truncate(200), Say("Done.")], {}, ["truncated", None], None),
        ([Fail(503, retry_after="0"), Say("Done.")], {}, ["unavailable", None], None),
        ([Fail(400), Say("Never.")], {}, ["refused"], "model_refused"),
        (
            [Say("", call("shop-find", order="A-1")), Say("Done.")],
            {"budget": Budget(turns=1)},
            [None],
            "TURN_BUDGET",
        ),
    ],
    ids=["cut off", "unavailable", "refused", "budget"],
)
async def test_what_went_wrong_has_its_type_and_is_counted_by_it(
    database: Database, script: Sequence[Step], options: Any, chats: list[str | None], stretch: str | None
) -> None:
    shop, spans, metrics = Shop(**options), Spans(), Metrics()
    observed = {"tracing": spans.tracing(), "counts": CountingObserver(metrics)}
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server, **observed) as kernel:
        await asked(kernel)
    assert chats == [of(span, "error.type")[0] for span in spans.named("chat")]
    run = spans.one("invoke_agent")
    assert [stretch] == of(run, "error.type")
    assert [StatusCode.UNSET if stretch is None else StatusCode.ERROR] == [run.status.status_code]
    counted = {labels[-1] or None: series.counts for labels, series in metrics.model_seconds.series.items()}
    assert Counter(chats) == {error: sum(counts) for error, counts in counted.items()}
    text = generate_latest(registry_of(metrics)).decode()
    assert 'gen_ai_client_operation_duration_seconds_count{error_type="' in text
    told = sum(sum(series.counts) for series in metrics.model_tokens.series.values())
    assert 2 * chats.count(None) == told


async def test_a_stretch_after_a_crash_is_linked_to_the_one_that_died(database: Database) -> None:
    shop, spans = Shop(), Spans()
    script: list[Step] = [Say("I look.", call("shop-find", order="A-1")), Stall(60.0), Say("All done.")]
    async with OpenAIServer(script) as server:
        async with open_shop(database.dsn, shop, server, tracing=spans.tracing()) as kernel:
            action = (await put(kernel, "shop.helper", ASKED, "k")).action
            await dispatch(kernel)
            task = asyncio.ensure_future(work_off(kernel))
            await until(lambda: len(server.requests) == 2, 20.0)
            task.cancel()
            await declare_dead(kernel)
            async with kernel.journal.pool.connection() as connection:
                died = await runs.find_trace(connection, "acme", action.action_id)
        # It told nobody that it died.
        spans.exporter.clear()
        async with open_shop(database.dsn, shop, server, tracing=spans.tracing(0.0)) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            assert ActionState.SUCCEEDED == (await read(kernel, action.action_id)).state
    assert died is not None
    run = spans.one("invoke_agent")
    assert [died.newest_id] == [f"{link.context.span_id:016x}" for link in run.links]
    assert ({died.trace_id}, [2]) == (spans.trace_ids, of(run, "placet.attempt"))
    # The call was told before the crash.
    assert ([], 1) == (spans.named("execute_tool"), len(spans.named("chat")))


@pytest.mark.parametrize("sampled", [True, False])
async def test_a_run_belongs_to_the_trace_of_whoever_asks_and_is_sampled_by_it(
    database: Database, sampled: bool
) -> None:
    shop, spans = Seeing(), Spans()
    trace = {"traceparent": f"00-{TRACE}-{CALLER}-0{int(sampled)}"}
    script, tracing = [Say("", call("shop-see", order="A-1")), Say("Done.")], spans.tracing(1.0)
    call_ = call_of("shop.helper", ASKED, "k")._replace(trace=trace)
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, shop, server, tracing=tracing) as kernel,
    ):
        asking = asyncio.ensure_future(execute(kernel, call_))
        await until(lambda: len(server.requests) == 1, 20.0)
        while not asking.done():
            await dispatch(kernel)
            await asyncio.sleep(0)
        action_id = (await asking).action.action_id
        async with kernel.journal.pool.connection() as connection:
            kept = await runs.find_trace(connection, "acme", action_id)
    assert sampled == (kept is not None) == bool(shop.traces[0])
    assert ({TRACE} if sampled else set()) == spans.trace_ids
    if sampled:
        assert int(CALLER, 16) == above(spans.one("invoke_agent"))


@pytest.mark.parametrize("shown", [False, True])
async def test_what_is_said_is_shown_only_if_wanted_and_never_what_is_sensitive(
    database: Database, shown: bool
) -> None:
    shop, spans = Shop(tools=(*TOOLS, "shop.charge")), Spans()

    @shop.app.tool("shop.charge", "idempotent", sensitive=["/card", "/number"])
    async def charge(order: str, card: str) -> dict[str, str]:
        return {"order": order, "number": card}

    script = [Say("I charge.", call("shop-charge", order="A-1", card=SECRET)), Say("All done.")]
    async with OpenAIServer(script) as server:
        tracing = spans.tracing(shows_content=shown)
        async with open_shop(database.dsn, shop, server, tracing=tracing) as kernel:
            await asked(kernel)
    text = "".join(span.to_json() for span in spans.exporter.get_finished_spans())
    assert SECRET not in text
    assert [shown] * 4 == [words in text for words in ("Help me.", "All done.", "Be brief.", "I charge.")]
    tool = spans.one("execute_tool shop.charge")
    arguments, result = of(tool, "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
    last = spans.named("chat")[-1]
    asked_with, said = of(last, "gen_ai.input.messages", "gen_ai.output.messages")
    if not shown:
        assert [None] * 4 == [arguments, result, asked_with, said]
        return
    assert {"card": None, "order": "A-1"} == json.loads(arguments)
    assert {"number": None, "order": "A-1"} == json.loads(result)
    messages = json.loads(asked_with)
    assert ["user", "assistant", "tool"] == [message["role"] for message in messages]
    assert [{"type": "text", "content": "Help me."}] == messages[0]["parts"]
    called, returned = messages[1]["parts"][1], messages[2]["parts"][0]
    assert ("tool_call", {"card": None, "order": "A-1"}) == (called["type"], called["arguments"])
    assert (called["id"], {"number": None, "order": "A-1"}) == (returned["id"], returned["response"])
    assert [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "All done."}],
            "finish_reason": "stop",
        }
    ] == json.loads(said)
