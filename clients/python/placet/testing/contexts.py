"""Contexts for unit tests of handlers: no server, no store, everything the handler did is remembered."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypedDict, Unpack

from placet.context import CallerInfo, Context, Json, SyncContext
from placet.failure import CallFailed, CallOutcome, Cancelled

Answer = Callable[[str, str, Json], Json]
"""Of a step, a capability and an input: what the child returns. It may raise CallFailed."""

TESTER = CallerInfo(tenant="test", subject="tester", kind="user")


@dataclass(slots=True)
class Said:
    """What a handler told its context, in order within each kind."""

    effects: int = 0
    checkpoints: list[tuple[str, Json]] = field(default_factory=list)
    chunks: list[Json | bytes] = field(default_factory=list)
    progress: list[tuple[str, float | None]] = field(default_factory=list)
    calls: list[tuple[str, str, Json]] = field(default_factory=list)


class Standing(TypedDict, total=False):
    """What may be said about the attempt; `seconds` is its time, 60 unless said. `answer` stands for the children."""

    capability: str
    version: str
    caller: CallerInfo
    attempt: int
    effect_key: str
    credential_handle: str | None
    provider_operation: str | None
    provider_cursor: Json
    trace: Mapping[str, str]
    seconds: float
    answer: Answer


class _Rehearsal:
    def __init__(self, **standing: Unpack[Standing]) -> None:
        self.action_id = str(uuid.uuid4())
        self.capability = standing.get("capability", "test.tool")
        self.version = standing.get("version", "1")
        self.caller = standing.get("caller", TESTER)
        self.attempt = standing.get("attempt", 1)
        self.effect_key = standing.get("effect_key") or f"placet-{self.action_id}"
        self.credential_handle = standing.get("credential_handle")
        self.provider_operation = standing.get("provider_operation")
        self.provider_cursor = standing.get("provider_cursor")
        self.trace: Mapping[str, str] = dict(standing.get("trace", {}))
        self.said = Said()
        self._end = time.monotonic() + standing.get("seconds", 60.0)
        self._answer = standing.get("answer", _refuse)

    def time_left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)

    def _called(self, step: str, capability: str, value: Json) -> Json:
        self.said.calls.append((step, capability, value))
        return self._answer(step, capability, value)


def _refuse(step: str, capability: str, value: Json) -> Json:
    raise CallFailed(
        CallOutcome(kind="refused", reason="CAPABILITY_NOT_FOUND", message=f"no answer for {capability}")
    )


class FakeContext(_Rehearsal, Context):
    """For async handlers: `await refund(FakeContext(), …)`, then look at `said`."""

    def __init__(self, **standing: Unpack[Standing]) -> None:
        super().__init__(**standing)
        self._cancel = asyncio.Event()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def cancel(self) -> None:
        self._cancel.set()

    async def effect(self) -> str:
        self.said.effects += 1
        return self.effect_key

    async def checkpoint(self, operation: str, cursor: Json = None) -> None:
        self.said.checkpoints.append((operation, cursor))

    async def chunk(self, data: Json | bytes) -> None:
        self.said.chunks.append(data)

    async def progress(self, message: str, fraction: float | None = None) -> None:
        self.said.progress.append((message, fraction))

    async def call(
        self,
        step: str,
        capability: str,
        input: Json = None,
        *,
        version: str = "",
        timeout: timedelta | float | None = None,
        scopes: Iterable[str] | None = None,
    ) -> Json:
        return self._called(step, capability, input)

    async def wait_cancelled(self) -> None:
        await self._cancel.wait()


class FakeSyncContext(_Rehearsal, SyncContext):
    """For plain handlers. `cancel` may be called from another thread."""

    def __init__(self, **standing: Unpack[Standing]) -> None:
        super().__init__(**standing)
        self._cancel = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def cancel(self) -> None:
        self._cancel.set()

    def effect(self) -> str:
        self.said.effects += 1
        return self.effect_key

    def checkpoint(self, operation: str, cursor: Json = None) -> None:
        self.said.checkpoints.append((operation, cursor))

    def chunk(self, data: Json | bytes) -> None:
        self.said.chunks.append(data)

    def progress(self, message: str, fraction: float | None = None) -> None:
        self.said.progress.append((message, fraction))

    def call(
        self,
        step: str,
        capability: str,
        input: Json = None,
        *,
        version: str = "",
        timeout: timedelta | float | None = None,
        scopes: Iterable[str] | None = None,
    ) -> Json:
        return self._called(step, capability, input)

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        return self._cancel.wait(timeout)

    def raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled
