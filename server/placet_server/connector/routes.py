"""Which manifest's capabilities are where: what the core sees of connectors.

The manifests that name one are few, and read again every second; their versions only when a manifest has changed. Each
address is one link, however many manifests name it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from placet.app import Tool
from placet.supervisor import Supervisor
from placet_server.connector.handler import RemoteHandler
from placet_server.connector.link import Link
from placet_server.connector.settings import ConnectorSettings
from placet_server.connector.token import TokenSigner
from placet_server.core.execution.connectors import Described
from placet_server.core.execution.engine import Engine
from placet_server.model.manifest import ConnectorAddress, Manifest, Problem
from placet_server.outbound.address import HostRefused, HostRules
from placet_server.store import catalog as rows
from placet_server.store.catalog import ConnectorRow
from placet_server.store.pool import Pool


class _Kept(NamedTuple):
    """A link, and the task that keeps asking it."""

    link: Link
    task: asyncio.Task[None]


class ConnectorRoutes:
    """One per process; belongs to its event loop. Implements `core/execution/connectors.py`."""

    def __init__(
        self,
        pool: Pool,
        settings: ConnectorSettings,
        signer: TokenSigner,
        *,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Raises ValueError for hosts that are none."""
        self.engine: Engine | None = None
        self._pool = pool
        self._settings = settings
        self._rules = HostRules(settings.hosts, is_insecure=settings.is_insecure)
        self._signer = signer
        self._ended = ended
        self._manifests: dict[tuple[str, str], ConnectorRow] = {}
        self._handlers: dict[tuple[str, str, str], RemoteHandler] = {}
        self._links: dict[ConnectorAddress, _Kept] = {}
        self._supervisor = Supervisor()
        self._learning = asyncio.Lock()
        self._learned_at = float("-inf")

    def find(self, tenant: str, capability: str, version: str) -> Tool | None:
        handler = self._handlers.get((tenant, capability, version))
        return None if handler is None else handler.tool

    def room(self, tenant: str, capability: str, version: str) -> int:
        handler = self._handlers.get((tenant, capability, version))
        return 0 if handler is None else handler.room()

    def children_only(self, tenant: str, capability: str, version: str) -> bool:
        handler = self._handlers.get((tenant, capability, version))
        return handler is not None and handler.children_only

    def answers(self, tenant: str, capability: str, version: str) -> bool:
        handler = self._handlers.get((tenant, capability, version))
        return handler is not None and handler.is_backed(handler.link.described)

    def count(self) -> int:
        """Addresses that are dialled."""
        return len(self._links)

    def count_up(self) -> int:
        """Those of them that answer and take work."""
        return sum(kept.link.is_up for kept in list(self._links.values()))

    async def learn(self, since: float) -> None:
        async with self._learning:
            if self._learned_at < since:
                began = time.monotonic()
                await self._read()
                self._learned_at = began

    async def describe(self, tenant: str, manifest: Manifest) -> Described:
        address = manifest.connector
        assert address is not None
        try:
            await self._rules.resolve(address.target, plaintext=address.plaintext)
        except HostRefused as refused:
            return Described(None, (_problem("connector.target", "connector_host_refused", str(refused)),))
        except OSError:
            return Described(None, (_unreachable(address, "its name cannot be looked up"),))
        link = await self._asked(address)
        described = link.described
        if described is None:
            return Described(None, (_unreachable(address, link.problem),))
        differing = tuple(
            _problem(f"capabilities[{index}]", "connector_contract_differs", _differs(each.name))
            for index, each in enumerate(manifest.capabilities)
            if described.digests.get((each.name, each.version), each.contract_digest_or_none)
            != each.contract_digest_or_none
        )
        return Described(described.handlers, differing)

    async def close(self) -> None:
        await self._supervisor.cancel_all()

    async def _asked(self, address: ConnectorAddress) -> Link:
        kept = self._links.get(address)
        if kept is not None:
            await kept.link.describe()
            return kept.link
        link = Link(address, self._rules, self._settings)
        try:
            await link.describe()
        finally:
            # Also where whoever admits goes away meanwhile.
            await link.close()
        return link

    async def _read(self) -> None:
        async with self._pool.connection() as connection:
            found = {(row.tenant, row.manifest): row for row in await rows.list_connectors(connection)}
            changed = [row for key, row in found.items() if self._manifests.get(key) != row]
            versions = {
                (row.tenant, row.manifest): await rows.list_versions(connection, row.tenant, row.manifest)
                for row in changed
            }
        gone = {key for key in self._manifests if key not in found} | set(versions)
        self._handlers = {
            key: handler for key, handler in self._handlers.items() if (key[0], handler.manifest) not in gone
        }
        for row in changed:
            self._route(row, versions[row.tenant, row.manifest])
        self._manifests = found
        await self._let_go({row.address for row in found.values()})

    def _route(self, row: ConnectorRow, versions: dict[tuple[str, str], str]) -> None:
        link = self._link(row.address)
        for identity, digest in versions.items():
            self._handlers[row.tenant, *identity] = RemoteHandler(
                self._engine,
                self._signer,
                link,
                manifest=row.manifest,
                identity=identity,
                digest=digest,
                ended=self._ended,
            )

    def _engine(self) -> Engine:
        assert self.engine is not None
        return self.engine

    def _link(self, address: ConnectorAddress) -> Link:
        kept = self._links.get(address)
        if kept is None:
            link = Link(address, self._rules, self._settings)
            kept = self._links[address] = _Kept(link, self._supervisor.start(link.keep()))
        return kept.link

    async def _let_go(self, wanted: set[ConnectorAddress]) -> None:
        """Of what nobody names any more, once nothing runs there."""
        for address, kept in list(self._links.items()):
            if address not in wanted and not kept.link.running:
                del self._links[address]
                await self._supervisor.stop([kept.task])


def _differs(name: str) -> str:
    return f"The connector serves {name} with another contract or schema under this version."


def _problem(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message)


def _unreachable(address: ConnectorAddress, why: str) -> Problem:
    text = f"{address.target} does not answer ({why}), so it was not checked what it serves."
    return Problem(path="connector", code="connector_unreachable", message=text[:1024], warning=True)
