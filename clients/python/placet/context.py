"""What a handler is given beside its input. The server, or `placet.testing`, implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateInfo:
    """Who acts for the caller's subject: somebody, or a capability that calls another one. `kind` as the caller's."""

    subject: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerInfo:
    """Who asked, as the server established it; never from the payload. `kind` is "user", "service" or "agent".
    `delegation`: who acts for it, the nearest first.
    """

    tenant: str
    subject: str
    kind: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    delegation: tuple[DelegateInfo, ...] = ()


class Standing(ABC):
    """What does not differ between async and plain handlers. Valid only while the handler runs."""

    action_id: str
    capability: str
    version: str
    caller: CallerInfo
    attempt: int
    """1 for the first try, rescues counted."""
    effect_key: str
    """Stable over all attempts of this action: send it to the provider as its idempotency key."""
    credential_handle: str | None
    """Opaque; the provider adapter resolves it."""
    provider_operation: str | None
    """As an earlier attempt checkpointed it."""
    provider_cursor: Json
    """As an earlier attempt checkpointed it."""
    trace: Mapping[str, str]
    """W3C trace headers for calls that the handler makes."""

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """Somebody asked to stop, or the deadline has passed."""

    @abstractmethod
    def time_left(self) -> float:
        """Seconds until this attempt is stopped; never negative."""


class Context(Standing):
    """Given to async handlers."""

    @abstractmethod
    async def effect(self) -> str:
        """Record durably that the provider is about to be touched, and return `effect_key`.

        With `effect_marked=True` an attempt that stops before this call is certain not to have taken effect.
        """

    @abstractmethod
    async def checkpoint(self, operation: str, cursor: Json = None) -> None:
        """Store the provider's id of the operation; durable before this returns. At most 256 characters."""

    @abstractmethod
    async def chunk(self, data: Json | bytes) -> None:
        """Send a part of the output: text, bytes, or any other JSON value; at most 256 KiB."""

    @abstractmethod
    async def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell watchers where the work stands; `fraction` from 0 to 1."""

    @abstractmethod
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
        """Run another capability as the step of that name of this action, in the requester's name, and return its
        output. The child waits in the queue of this action and is run by any server; it needs no key: the same step is
        the same child, also of a later attempt. `timeout` (seconds) is for one attempt of it, and never longer than
        what this one has left. The child acts for the requester as this action does, with this one's capability as one
        more in between; `scopes`: with no scope but those of these that the requester has.

        A step is 1 to 64 letters, digits, "_", "." or "-". Raises `placet.CallFailed` unless the child succeeds. A
        "composed" tool bounds no time of its children, and is parked while all that it calls waits: `Parked` is raised,
        which is no Exception, and the handler begins again once a step has ended.
        """

    @abstractmethod
    async def wait_cancelled(self) -> None:
        """Return once somebody asked to stop."""


class SyncContext(Standing):
    """Given to plain handlers, which run in threads; every method blocks."""

    @abstractmethod
    def effect(self) -> str:
        """See `Context.effect`."""

    @abstractmethod
    def checkpoint(self, operation: str, cursor: Json = None) -> None:
        """See `Context.checkpoint`."""

    @abstractmethod
    def chunk(self, data: Json | bytes) -> None:
        """See `Context.chunk`."""

    @abstractmethod
    def progress(self, message: str, fraction: float | None = None) -> None:
        """See `Context.progress`."""

    @abstractmethod
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
        """See `Context.call`."""

    @abstractmethod
    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; True once somebody asked to stop."""

    @abstractmethod
    def raise_if_cancelled(self) -> None:
        """Raise `placet.Cancelled` if somebody asked to stop: a thread cannot be stopped from outside."""
