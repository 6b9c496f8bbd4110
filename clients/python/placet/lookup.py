"""What a lookup is given, and what it says: whether an effect that may have happened did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from placet.context import CallerInfo, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupContext:
    """The attempt whose effect is in doubt. Async and plain lookups get the same."""

    action_id: str
    capability: str
    version: str
    caller: CallerInfo
    attempt: int
    effect_key: str
    """What the attempt could send to the provider as its idempotency key."""
    credential_handle: str | None = None
    provider_operation: str | None = None
    """As the attempt, or an earlier one, checkpointed it."""
    provider_cursor: Json = None
    trace: Mapping[str, str] = field(default_factory=dict)
    """W3C trace headers for calls that the lookup makes."""
    until: float
    """By `time.monotonic()`; an answer that comes later is not read."""

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    def time_left(self) -> float:
        """Seconds until nobody waits for the answer any more; never negative."""
        return max(0.0, self.until - time.monotonic())


@dataclass(frozen=True, slots=True)
class Committed:
    """The effect has happened. `output`: what the handler would have returned, which the tool's schema must allow."""

    output: Any = None


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The effect has not happened. Counts once the attempt can no longer act; until then it is asked again.

    `retryable`: it may be tried again, as far as the contract allows. `code` and `message` are those of the failure
    that it otherwise ends with, as in `placet.Failure`.
    """

    _: KW_ONLY
    retryable: bool = False
    code: str = "not_done"
    message: str = ""


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Nobody can say yet: asked again later. An error that a lookup raises means the same."""

    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """`call(context, text)` takes the input as JSON text and returns what it found, or an awaitable of it if
    `is_async`."""

    is_async: bool
    call: Callable[[Any, str], Any]
