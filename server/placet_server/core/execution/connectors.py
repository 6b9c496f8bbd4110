"""Handlers in other processes, as the core sees them; `connector/` is what stands behind it.

A handler there is a tool like any other, whose call is a conversation: what it answers is judged, fenced and settled in
no other way. All that differs is said here: it may not answer now, and only so much may be begun there at once.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from placet.app import Tool
from placet.failure import Category, Effect, Failure
from placet_server.model.manifest import Handlers, Manifest, Problem


class Described(NamedTuple):
    """What a connector says that it serves. `handlers` None: it could not be asked."""

    handlers: Handlers | None
    problems: tuple[Problem, ...] = ()


class Connectors(Protocol):
    """By tenant: what one tenant admitted no other one reaches."""

    def find(self, tenant: str, capability: str, version: str) -> Tool | None: ...

    def room(self, tenant: str, capability: str, version: str) -> int:
        """How many attempts may begin there now; 0 while it does not answer."""

    def children_only(self, tenant: str, capability: str, version: str) -> bool:
        """So many wait there for what they have called that nothing else may begin."""

    def answers(self, tenant: str, capability: str, version: str) -> bool:
        """It is there, however busy."""

    async def learn(self, since: float) -> None:
        """What was admitted before `since`, by time.monotonic(), is known afterwards. Raises StoreUnavailable."""

    async def describe(self, tenant: str, manifest: Manifest) -> Described:
        """Asks the connector of a manifest that is about to be admitted."""


class NoConnectors:
    """Nothing runs elsewhere."""

    def find(self, tenant: str, capability: str, version: str) -> Tool | None:
        return None

    def room(self, tenant: str, capability: str, version: str) -> int:
        return 0

    def children_only(self, tenant: str, capability: str, version: str) -> bool:
        return False

    def answers(self, tenant: str, capability: str, version: str) -> bool:
        return False

    async def learn(self, since: float) -> None: ...

    async def describe(self, tenant: str, manifest: Manifest) -> Described:
        text = "This server dials no connectors."
        return Described(None, (Problem(path="connector", code="connector_host_refused", message=text),))


class ConnectorFailure(Failure):
    """The connector, or the way to it, failed for the moment; not the author's code. `effect` is not_done where it is
    proved that the code was not entered, else unknown.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        effect: Effect,
        category: Category = "temporary",
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(code, message, category=category, effect=effect, retry_delay=retry_delay)


class OutputText(NamedTuple):
    """An output that came as JSON text."""

    text: str
