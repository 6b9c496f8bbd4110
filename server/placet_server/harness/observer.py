"""What is told of runs as they go on: each request to a model is counted, and where runs are traced, each stretch, each
request and each call has a span (`tracing.py`). Nothing of it changes what a run does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from placet_server.core.execution.child import ChildEnd
from placet_server.core.execution.stretch import Stretch
from placet_server.harness.provider.answer import (
    Answer,
    BeforeSent,
    OnDelta,
    Pins,
    Provider,
    TurnFailure,
    at_once,
)
from placet_server.harness.provider.catalogue import Kind, ModelEntry
from placet_server.model.agent import ModelSettings
from placet_server.model.capability import Capability
from placet_server.model.entry import Opened
from placet_server.model.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from placet_server.harness.plan import PlannedCall
    from placet_server.harness.transcript import Transcript

CANCELLED = "cancelled"

# As the OpenTelemetry conventions call them, where they have a word.
PROVIDERS: Mapping[Kind, str] = {
    Kind.OPENAI: "openai",
    Kind.OPENAI_RESPONSES: "openai",
    Kind.OPENAI_COMPATIBLE: "openai",
    Kind.ANTHROPIC: "anthropic",
    Kind.GOOGLE: "gcp.gemini",
    Kind.BEDROCK: "aws.bedrock",
    Kind.MISTRAL: "mistral_ai",
    Kind.OLLAMA: "ollama",
    Kind.LOCAL: "placet",
}


class ChatRequest(NamedTuple):
    """One request to a model."""

    entry: ModelEntry
    messages: Sequence[str]
    pins: Pins
    settings: ModelSettings


class ChatEnd(NamedTuple):
    """What came of it. `error`: a TurnProblem, `cancelled`, or the class of a fault; empty: there is an answer.
    `status`: what the provider said by HTTP, if that was the error.
    """

    answer: Answer | None
    error: str = ""
    status: int = 0


class TurnCounts(Protocol):
    """Must be quick, and must not raise."""

    def asked_model(
        self, provider: str, model: str, seconds: float, error: str, usage: Usage | None
    ) -> None: ...


class ChatSpan(Protocol):
    """Of one request."""

    def end(self, end: ChatEnd) -> None: ...


class StretchSpans(Protocol):
    """Of one stretch. None of it raises."""

    async def opened(self, opened: Opened) -> None:
        """The run has a place where its trace can be kept; steps that are admitted from here on find it there."""

    async def chat(self, request: ChatRequest) -> ChatSpan:
        """The request is about to be made."""

    def called(self, calls: Sequence[PlannedCall], ends: Mapping[int, ChildEnd]) -> None:
        """All calls of a turn have ended, by their numbers."""

    def told(self) -> None:
        """It is stored that the model is told of them."""


class RunSpans(Protocol):
    """Of all runs of a server."""

    def stretch(
        self, stretch: Stretch, capability: Capability, state: Transcript
    ) -> AbstractAsyncContextManager[StretchSpans]:
        """Around all of it; what it raises passes through."""


class Untraced:
    """No spans: of a stretch, and of its requests."""

    async def opened(self, opened: Opened) -> None: ...

    async def chat(self, request: ChatRequest) -> ChatSpan:
        return self

    def called(self, calls: Sequence[PlannedCall], ends: Mapping[int, ChildEnd]) -> None: ...

    def told(self) -> None: ...

    def end(self, end: ChatEnd) -> None: ...


UNTRACED = Untraced()


class NoSpans:
    """Nobody traces runs."""

    @asynccontextmanager
    async def stretch(
        self, stretch: Stretch, capability: Capability, state: Transcript
    ) -> AsyncIterator[StretchSpans]:
        yield UNTRACED


class Uncounted:
    """Nobody counts."""

    def asked_model(
        self, provider: str, model: str, seconds: float, error: str, usage: Usage | None
    ) -> None: ...


class Observed:
    """A provider, each of whose turns is counted, and told to the spans of its stretch."""

    def __init__(
        self, provider: Provider, entry: ModelEntry, counts: TurnCounts, spans: StretchSpans
    ) -> None:
        self._provider = provider
        self._entry = entry
        self._counts = counts
        self._spans = spans

    async def turn(
        self,
        messages: Sequence[str],
        pins: Pins,
        settings: ModelSettings,
        *,
        on_delta: OnDelta,
        timeout_seconds: float,
        before_sent: BeforeSent = at_once,
    ) -> Answer:
        """See `Provider.turn`."""
        chat = await self._spans.chat(ChatRequest(self._entry, messages, pins, settings))
        begin, is_held = perf_counter(), False
        end = ChatEnd(None, CANCELLED)

        async def let_go() -> None:
            nonlocal begin, is_held
            is_held = True
            await before_sent()
            begin, is_held = perf_counter(), False

        try:
            answer = await self._provider.turn(
                messages,
                pins,
                settings,
                on_delta=on_delta,
                timeout_seconds=timeout_seconds,
                before_sent=let_go,
            )
            end = ChatEnd(answer)
            return answer
        except TurnFailure as failure:
            end = ChatEnd(None, failure.category.value, failure.status)
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            end = ChatEnd(None, type(error).__name__)
            raise
        finally:
            if not is_held:
                self._counts.asked_model(
                    PROVIDERS[self._entry.kind],
                    self._entry.model,
                    perf_counter() - begin,
                    end.error,
                    None if end.answer is None else end.answer.usage,
                )
            chat.end(end)
