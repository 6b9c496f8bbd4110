"""The provider of every model: a client for each model and credential, made when it is first asked.

Nothing of the library is imported with this module. `load` does it, in a thread, once.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from placet_server.harness.budget import BYTES_PER_TOKEN, bytes_of
from placet_server.harness.provider.answer import (
    AgentsUnavailable,
    Answer,
    BeforeSent,
    OnDelta,
    Pins,
    TurnFailure,
    at_once,
)
from placet_server.harness.provider.catalogue import OPEN_KINDS, Catalogue, ModelEntry, resolved_headers
from placet_server.harness.provider.credential import CredentialMissing, Credentials, Secret, scrubbed
from placet_server.harness.provider.delta import pieces
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import TurnProblem

if TYPE_CHECKING:
    from placet_server.harness.provider.kinds import Client

EXTRA = "placet[agents]"
_LAZY = {"placet_server.harness.provider.request", "placet_server.harness.provider.kinds"}
_loaded: set[str] = set()
CLIENTS_MAX = 256
CONTEXT_BYTES_MAX = 16 * 2**20


def is_here() -> bool:
    """Whether the extra is installed; nothing of it is imported for that."""
    return importlib.util.find_spec("pydantic_ai") is not None


async def load() -> None:
    """Raises AgentsUnavailable without the extra."""
    try:
        # A thread costs more than it takes to see that there is nothing to do.
        for name in sorted(_LAZY - _loaded):
            await asyncio.to_thread(importlib.import_module, name)
            _loaded.add(name)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] == "placet_server":
            raise
        raise AgentsUnavailable("extra_missing", f"agents need {EXTRA}") from error


class Models:
    """All models of a server. `catalogue` and `credentials` give what the operator's files say now."""

    def __init__(
        self,
        catalogue: Callable[[], Catalogue],
        credentials: Callable[[], Credentials],
        connections_max: int = 512,
    ) -> None:
        self._catalogue = catalogue
        self._credentials = credentials
        self._connections_max = connections_max
        self._clients: dict[tuple[ModelEntry, tuple[Secret, ...]], _Held] = {}
        self._making = asyncio.Lock()

    def find(self, name: str, *, with_price: bool = False) -> ModelEntry:
        """Raises AgentsUnavailable: no such model, or none whose cost can be bounded."""
        entry = self._catalogue().find(name)
        if with_price and entry.price is None:
            raise AgentsUnavailable(
                "price_unknown", f"the model {name!r} has no price, and the budget is in money"
            )
        return entry

    def provider(self, name: str, tenant: str, handle: str = "") -> ModelProvider:
        """`handle`: the agent's credential; empty: the model's own. Raises AgentsUnavailable."""
        entry = self.find(name)
        return ModelProvider(self, entry, _Access.of(entry, self._credentials(), tenant, handle))

    async def look(self) -> list[tuple[str, str]]:
        """Each by its name, with what is missing so that it could be asked with its own credential, in order."""
        catalogue, credentials = self._catalogue(), self._credentials()

        def problem(entry: ModelEntry) -> str:
            try:
                _Access.of(entry, credentials, "", "")
            except AgentsUnavailable as error:
                return error.problem
            return ""

        def read() -> list[tuple[str, str]]:
            return [(name, problem(catalogue.find(name))) for name in catalogue.names]

        return await asyncio.to_thread(read)

    @asynccontextmanager
    async def client(self, entry: ModelEntry, access: _Access) -> AsyncIterator[Client]:
        """Stays open as long as it is used. Raises AgentsUnavailable, TurnFailure."""
        held = await self._held(entry, access)
        held.users += 1
        try:
            yield held.client
        finally:
            held.users -= 1

    async def close(self) -> None:
        """Clients of credentials that were changed meanwhile, too."""
        clients, self._clients = self._clients, {}
        for held in clients.values():
            await held.client.close()

    async def _held(self, entry: ModelEntry, access: _Access) -> _Held:
        known = (entry, access.secrets)
        if known not in self._clients:
            # Others go on meanwhile with those that there are.
            async with self._making:
                if known not in self._clients:
                    await self._make_room()
                    self._clients[known] = _Held(await _made(entry, access, self._connections_max))
        # To the end: the first is the one that was not asked for longest.
        held = self._clients[known] = self._clients.pop(known)
        return held

    async def _make_room(self) -> None:
        unused = [known for known, held in self._clients.items() if held.users == 0]
        for known in unused[: max(len(self._clients) - CLIENTS_MAX + 1, 0)]:
            await self._clients.pop(known).client.close()


async def _made(entry: ModelEntry, access: _Access, connections_max: int) -> Client:
    await load()
    from placet_server.harness.provider import kinds

    key = None if access.key is None else access.key.reveal()
    try:
        return await asyncio.to_thread(kinds.make, entry, key, dict(access.headers), connections_max)
    except ImportError:
        raise AgentsUnavailable("extra_missing", f"{entry.kind.value} needs {EXTRA}") from None
    except Exception as error:
        # A region or an address with which the client cannot be made at all.
        detail = scrubbed(f"{type(error).__name__}: {error}", access.secrets)
        raise TurnFailure(TurnProblem.INVALID, detail=detail) from None


class ModelProvider:
    """One model with one credential: see the protocol Provider."""

    def __init__(self, models: Models, entry: ModelEntry, access: _Access) -> None:
        self.entry = entry
        self._models = models
        self._access = access

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
        size = sum(len(message.encode()) for message in messages)
        if size > CONTEXT_BYTES_MAX:
            raise TurnFailure(TurnProblem.CONTEXT_TOO_LONG, detail=f"{size} bytes are more than may be sent")
        settings = replace(settings, max_tokens=min(settings.max_tokens, self.entry.max_tokens))
        async with self._models.client(self.entry, self._access) as client, pieces(on_delta) as deltas:
            from placet_server.harness.provider import request

            return await request.ask(
                client.model,
                self.entry.kind,
                messages,
                pins,
                settings,
                on_delta=deltas.add,
                timeout_seconds=min(timeout_seconds, self.entry.request_timeout_seconds),
                price=self.entry.price,
                scrub=partial(scrubbed, secrets=self._access.secrets),
                is_long=self._is_long(bytes_of(messages), pins),
                before_sent=before_sent,
            )

    def _is_long(self, size: int, pins: Pins) -> bool:
        tokens = (size + len(pins.instructions.encode())) // BYTES_PER_TOKEN
        return 0 < self.entry.context_tokens <= tokens


@dataclass(slots=True)
class _Held:
    """A client, and how many turns are with it."""

    client: Client
    users: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access:
    """With what a model is asked. `secrets`: all that must not be told."""

    key: Secret | None
    headers: tuple[tuple[str, str], ...]
    secrets: tuple[Secret, ...]

    @classmethod
    def of(cls, entry: ModelEntry, credentials: Credentials, tenant: str, handle: str) -> _Access:
        """Raises AgentsUnavailable."""
        try:
            key = _key(entry, credentials, tenant, handle)
            headers, secrets = resolved_headers(entry)
        except CredentialMissing as error:
            raise AgentsUnavailable("credential_missing", str(error)) from None
        return cls(
            key=key,
            headers=tuple(headers.items()),
            secrets=tuple(secrets if key is None else [key, *secrets]),
        )

    def __repr__(self) -> str:
        return "_Access()"


def _key(entry: ModelEntry, credentials: Credentials, tenant: str, handle: str) -> Secret | None:
    if handle:
        return credentials.secret(handle, tenant)
    if entry.credential:
        # The operator gave it to the model, and with it to all who may name the model.
        return credentials.own(entry.credential)
    if entry.key is not None:
        return entry.key.read()
    if entry.kind in OPEN_KINDS or entry.headers:
        return None
    raise CredentialMissing(f"the model {entry.name!r} has no credential")
