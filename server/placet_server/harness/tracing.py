"""Spans of runs, by OpenTelemetry's conventions for generative AI. Imported only where spans are exported.

All of a run is one trace, that of whoever asked for it. Each stretch is `invoke_agent NAME`, beside the others and
linked to the one before it; within it `chat MODEL` for each request, and `execute_tool NAME` for each call that the
model was told the end of. A call's span tells when its action was admitted and when it ended, as the store knows it,
whichever stretches or processes that took; so there is one of it, made once what the model is told is stored. Its id
is known before (`core/execution/trace.py`): what the action itself does is below it.

A stretch whose process dies has no span; the next one is linked to it all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, Span, SpanKind, set_span_in_context

from placet.failure import Cancelled, Failure, Parked
from placet_server.core.execution.attempt import LeaseLost
from placet_server.core.execution.child import ChildEnd
from placet_server.core.execution.ending import Ended, Exhausted, StopCause
from placet_server.core.execution.stretch import Stretch
from placet_server.core.execution.trace import keep_trace, span_of, trace_of_run
from placet_server.harness.observer import PROVIDERS, UNTRACED, ChatEnd, ChatRequest, ChatSpan, StretchSpans
from placet_server.harness.plan import PlannedCall
from placet_server.harness.provider import content
from placet_server.harness.provider.content import Sensitive
from placet_server.harness.span_attributes import (
    fail,
    of_model,
    of_response,
    of_settings,
    of_tool,
    of_usage,
)
from placet_server.harness.span_context import context, context_of, within
from placet_server.harness.transcript import Transcript
from placet_server.model.capability import Capability
from placet_server.model.entry import Opened, PinnedTool
from placet_server.model.outcome import OutcomeKind
from placet_server.model.usage import Usage
from placet_server.store.run import RunTrace
from placet_server.telemetry.span_ids import SpanIds
from placet_server.telemetry.tracing import is_sampled


class _Made(NamedTuple):
    """A call and how it has ended."""

    call: PlannedCall
    end: ChildEnd


class RunTracing:
    """See `RunSpans`. `provider` records whatever it is given, and takes the ids of spans from `ids`. `shows_content`:
    what is said is in the spans, but for what contracts call sensitive.
    """

    def __init__(
        self, provider: TracerProvider, ids: SpanIds, ratio: float, *, shows_content: bool = False
    ) -> None:
        self.tracer = provider.get_tracer("placet")
        self.ids = ids
        self.shows_content = shows_content
        self._ratio = ratio

    @asynccontextmanager
    async def stretch(
        self, stretch: Stretch, capability: Capability, state: Transcript
    ) -> AsyncIterator[StretchSpans]:
        work = stretch.attempt.run.work
        before = None
        if state.opened is not None:
            action = stretch.attempt.action
            before = await trace_of_run(stretch.attempt.journal, action.requester.tenant, action.action_id)
        # What its first stretch left to chance is not thrown for again.
        ratio = self._ratio if state.opened is None else 0.0
        if before is None and not is_sampled(work.trace, ratio):
            yield UNTRACED
            return
        spans = _Stretch(self, stretch, capability, before)
        try:
            if state.opened is not None:
                await spans.opened(state.opened)
            yield spans
        except BaseException as error:
            spans.end(error)
            raise
        else:
            spans.end(None)


class _Stretch:
    """See `StretchSpans`."""

    def __init__(
        self, tracing: RunTracing, stretch: Stretch, capability: Capability, before: RunTrace | None
    ) -> None:
        self._tracing = tracing
        self._stretch = stretch
        self._capability = capability
        self._made: list[_Made] = []
        self._usage = Usage()
        caller = context_of(stretch.attempt.run.work.trace)
        above = caller if before is None else context(before.trace_id, before.above_id)
        links = [] if before is None else [Link(context(before.trace_id, before.newest_id))]
        if before is not None and caller is not None and f"{caller.trace_id:032x}" != before.trace_id:
            # Somebody else has asked for it to go on.
            links.append(Link(caller))
        action = stretch.attempt.action
        self._span = tracing.tracer.start_span(
            f"invoke_agent {capability.name}",
            context=None if above is None else within(above),
            kind=SpanKind.INTERNAL,
            links=links,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": capability.name,
                "gen_ai.agent.version": capability.version,
                "placet.action_id": action.action_id,
                "placet.attempt": action.attempt,
            },
        )
        own = self._span.get_span_context()
        self._above = own if above is None else above

    async def opened(self, opened: Opened) -> None:
        self._span.set_attribute("gen_ai.request.model", opened.model)
        if opened.history is not None:
            self._span.set_attribute("gen_ai.conversation.id", opened.history.session_id)
        own, attempt = self._span.get_span_context(), self._stretch.attempt
        trace = RunTrace(f"{own.trace_id:032x}", f"{self._above.span_id:016x}", f"{own.span_id:016x}")
        await keep_trace(attempt.journal, attempt.action, trace)

    async def chat(self, request: ChatRequest) -> ChatSpan:
        shown = self._sensitive(request.pins.tools) if self._tracing.shows_content else None
        span = self._tracing.tracer.start_span(
            f"chat {request.entry.model}",
            context=set_span_in_context(self._span),
            kind=SpanKind.CLIENT,
            attributes=of_model(request.entry) | of_settings(request.settings),
        )
        if shown is not None:
            span.set_attribute("gen_ai.input.messages", content.input_messages(request.messages, shown))
            if request.pins.instructions:
                told = content.instructions(request.pins.instructions, shown)
                span.set_attribute("gen_ai.system_instructions", told)
        self._span.set_attribute("gen_ai.provider.name", PROVIDERS[request.entry.kind])
        return _Chat(self, span, shown)

    def called(self, calls: Sequence[PlannedCall], ends: Mapping[int, ChildEnd]) -> None:
        self._made = [_Made(call, ends[call.call]) for call in calls]

    def told(self) -> None:
        made, self._made = self._made, []
        for each in made:
            self._tell(each.call, each.end)

    def add(self, usage: Usage) -> None:
        """What an answer took, of all that the stretch has."""
        self._usage = Usage(
            input_tokens=self._usage.input_tokens + usage.input_tokens,
            output_tokens=self._usage.output_tokens + usage.output_tokens,
            cached_tokens=self._usage.cached_tokens + usage.cached_tokens,
        )

    def end(self, error: BaseException | None) -> None:
        how, wrong = self._ended(error)
        self._span.set_attribute("placet.stretch", how)
        self._span.set_attributes(of_usage(self._usage))
        if wrong:
            fail(self._span, wrong)
        self._span.end()

    def _ended(self, error: BaseException | None) -> tuple[str, str]:
        """How it ended, and the type of the error if it is one."""
        attempt = self._stretch.attempt
        match error:
            case None:
                return "ended", ""
            case Failure():
                return "failed", error.code
            case Ended(ending=Exhausted() as ending):
                return "exhausted", ending.reason
            case Ended():
                return "postponed", ""
            case LeaseLost():
                return "lost", "lease_lost"
        cause = attempt.run.stop_cause
        if cause is StopCause.SHUTDOWN:
            return "stopped", ""
        if cause is not None:
            return "stopped", cause.value
        if attempt.awaited is not None or isinstance(error, Parked):
            return "parked", ""
        if isinstance(error, asyncio.CancelledError | Cancelled):
            return "stopped", "cancelled"
        return "failed", type(error).__name__

    def _tell(self, call: PlannedCall, end: ChildEnd) -> None:
        outcome = end.outcome
        assert call.tool is not None
        if outcome.action_id:
            self._tracing.ids.then(span_of(outcome.action_id))
        span = self._tracing.tracer.start_span(
            f"execute_tool {call.tool.name}",
            context=set_span_in_context(self._span),
            kind=SpanKind.INTERNAL,
            start_time=_nanoseconds(end.create_time_us),
            attributes=of_tool(call.tool, call.provider_id)
            | {"placet.action_id": outcome.action_id, "placet.outcome": outcome.kind.value},
        )
        if self._tracing.shows_content:
            paths = content.paths_of(call.tool)
            span.set_attribute("gen_ai.tool.call.arguments", content.redacted(call.input_json, paths))
            if end.output_json is not None:
                shown = content.redacted(end.output_json, paths)
                span.set_attribute("gen_ai.tool.call.result", shown)
        if outcome.kind is not OutcomeKind.SUCCEEDED:
            fail(span, outcome.failure_code or outcome.reason or outcome.kind.value)
        span.end(_nanoseconds(end.settle_time_us))

    def _sensitive(self, tools: Sequence[PinnedTool]) -> Sensitive:
        return Sensitive(
            own=self._capability.contract.data.sensitive_paths,
            tools={tool.alias: content.paths_of(tool) for tool in tools},
        )


class _Chat:
    """See `ChatSpan`."""

    def __init__(self, stretch: _Stretch, span: Span, shown: Sensitive | None) -> None:
        self._stretch = stretch
        self._span = span
        self._shown = shown

    def end(self, end: ChatEnd) -> None:
        span, answer = self._span, end.answer
        if answer is not None:
            span.set_attributes(of_response(answer.text, answer.finish))
            if answer.usage is not None:
                span.set_attributes(of_usage(answer.usage))
                self._stretch.add(answer.usage)
            if self._shown is not None:
                said = content.output_messages(answer.text, answer.finish, self._shown)
                span.set_attribute("gen_ai.output.messages", said)
        if end.error:
            fail(span, end.error)
        if end.status:
            span.set_attribute("http.response.status_code", end.status)
        span.end()


def _nanoseconds(time_us: int | None) -> int | None:
    """None, of what has no action: the span says then when it was told."""
    return None if time_us is None else time_us * 1000
