"""One address: a channel, what stands behind it, and how much may be begun there.

It is asked every few seconds what it serves; while it does not answer, after a growing pause. Who wants to begin
something meanwhile has it asked at once, together with whoever else wants to. A channel is left only when nothing runs
on it, and the next one looks the name up again.

An attempt that waits for a child gives its slot back meanwhile and takes it again when it goes on, though there may
then be more at work than slots. As many as may be at work may wait so; beyond that children alone are begun, so that
what was begun gets done before more is begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import AioRpcError, Channel

from placet.v1 import connector_service_pb2 as pb
from placet.v1.connector_service_pb2_grpc import ConnectorServiceStub
from placet_server.connector.address import dialled
from placet_server.connector.frames import Handlers, read_description
from placet_server.connector.settings import ConnectorSettings
from placet_server.model.errors import Overloaded, PlacetError
from placet_server.model.manifest import MANIFEST_BYTES_MAX, ConnectorAddress
from placet_server.outbound.address import HostRefused, HostRules, place_of

DESCRIBE_TIMEOUT_SECONDS = 5.0
MESSAGE_BYTES_MAX = 4 * 2**20
# How many attempts may wait for children, beside each that may be at work: a connector bears as many.
LENT_SHARE = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a process said of itself. `digests` of the contracts, hex, and what handlers can do, by name and version."""

    boot_id: str
    concurrency_max: int
    is_draining: bool
    digests: Mapping[tuple[str, str], str]
    handlers: Handlers


class Link:
    """Belongs to one event loop. `running`: conversations on it; `lent`: those of them that wait for children."""

    def __init__(self, address: ConnectorAddress, rules: HostRules, settings: ConnectorSettings) -> None:
        self.address = address
        self.settings = settings
        self.running = 0
        self.lent = 0
        self.problem = "it was not asked yet"
        self.described: Description | None = None
        self._rules = rules
        self._channel: Channel | None = None
        self._asking = asyncio.Lock()
        self._asked = 0
        self._failures = 0
        self._hurry = asyncio.Event()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._children: deque[asyncio.Future[None]] = deque()

    @property
    def is_up(self) -> bool:
        return self.described is not None and not self.described.is_draining

    @property
    def children_only(self) -> bool:
        return self.described is not None and self.lent >= self.described.concurrency_max

    def room(self) -> int:
        """Where only children may begin, for so many of them."""
        if self.described is None or self.described.is_draining:
            return 0
        waiting = len(self._children) + (0 if self.children_only else len(self._queue))
        return max(0, self.described.concurrency_max - self._working() - waiting)

    @property
    def stub(self) -> Any:
        assert self._channel is not None
        return ConnectorServiceStub(self._channel)

    async def keep(self) -> None:
        """Asks, and asks again, until cancelled."""
        try:
            while True:
                await self.describe()
                self._hurry.clear()
                # Not wait_for, which before Python 3.12 takes a wake-up that comes with a cancel for the answer.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_seconds()):
                        await self._hurry.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Cuts what runs on it."""
        if self._channel is not None:
            await self._channel.close()

    def suspect(self) -> None:
        """Something went wrong there: it is asked again at once."""
        self._hurry.set()

    async def describe(self) -> Description | None:
        """As it answers now, or a moment ago if others have asked at the same time. None: it does not."""
        asked = self._asked
        async with self._asking:
            if self._asked != asked:
                return self.described
            try:
                async with asyncio.timeout(DESCRIBE_TIMEOUT_SECONDS):
                    stub = await self._dialled()
                    answer = await stub.Describe(pb.DescribeRequest(), timeout=DESCRIBE_TIMEOUT_SECONDS)
                    described = await asyncio.to_thread(_read, answer)
            except AioRpcError as error:
                await self._fail(f"{error.code().name}: {error.details() or ''}"[:300])
            except (HostRefused, OSError, TimeoutError, ValueError, DecodeError, PlacetError) as error:
                await self._fail(str(error)[:300] or "it does not answer")
            else:
                if self._failures or self.described is None:
                    _log.info("connector %s answers", self.address.target)
                self.described, self.problem, self._failures = described, "", 0
                self._let_in()
            self._asked += 1
            return self.described

    async def take(self, seconds: float, *, is_child: bool = False) -> LinkSlot:
        """As soon as there is one. Raises TimeoutError."""
        if self.room() > 0 and (is_child or not self.children_only):
            self.running += 1
            return LinkSlot(self)
        queue = self._children if is_child else self._queue
        waiter = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:
            if waiter in queue:
                queue.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self.count(running=-1)
            raise
        return LinkSlot(self)

    def count(self, *, running: int = 0, lent: int = 0) -> None:
        """For slots."""
        self.running += running
        self.lent += lent
        self._let_in()

    def _working(self) -> int:
        return self.running - self.lent

    def _let_in(self) -> None:
        described = self.described
        while described is not None and self._working() < described.concurrency_max:
            queue = self._children or self._queue
            if not queue or (self.children_only and not self._children):
                return
            waiter = queue.popleft()
            if not waiter.done():
                self.running += 1
                waiter.set_result(None)

    async def _dialled(self) -> Any:
        if self._channel is None:
            addresses = await self._rules.resolve(self.address.target, plaintext=self.address.plaintext)
            place = place_of(self.address.target)
            target = dialled(addresses, place.port)
            credentials = None if self.address.plaintext else _credentials(self.settings)
            options = self._options(place.host)
            if credentials is None:
                self._channel = grpc.aio.insecure_channel(target, options=options)
            else:
                self._channel = grpc.aio.secure_channel(target, credentials, options=options)
        return self.stub

    def _options(self, host: str) -> list[tuple[str, Any]]:
        settings = self.settings
        name = self.address.tls_server_name or host
        options: list[tuple[str, Any]] = [
            ("grpc.default_authority", name),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.keepalive_time_ms", round(settings.keepalive_seconds * 1000)),
            ("grpc.keepalive_timeout_ms", round(settings.keepalive_timeout_seconds * 1000)),
            # What grpc 1.85 goes by: it arms no keepalive timeout below this one, which is a minute unless said.
            ("grpc.http2.ping_timeout_ms", round(settings.keepalive_timeout_seconds * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_receive_message_length", MANIFEST_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ]
        if not self.address.plaintext:
            options.append(("grpc.ssl_target_name_override", name))
        return options

    async def _fail(self, problem: str) -> None:
        if not self._failures:
            _log.warning("connector %s does not answer: %s", self.address.target, problem)
        self._failures += 1
        self.described, self.problem = None, problem
        if self._channel is not None and not self.running:
            channel, self._channel = self._channel, None
            await channel.close()

    def _pause_seconds(self) -> float:
        if not self._failures:
            return self.settings.describe_seconds
        grown = self.settings.backoff_seconds_min * 2.0 ** min(self._failures - 1, 16)
        return min(self.settings.backoff_seconds_max, grown)


class LinkSlot:
    """Of one conversation."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._is_lent = False
        self._is_over = False

    async def lend(self) -> None:
        """Raises Overloaded when too many wait so."""
        link = self._link
        lent_max = LENT_SHARE * (1 if link.described is None else link.described.concurrency_max)
        if link.lent >= lent_max:
            raise Overloaded(limit="waiting_attempts", limit_max=lent_max)
        if not self._is_over:
            self._is_lent = True
            link.count(lent=1)

    async def take_back(self) -> None:
        if self._is_lent:
            self._is_lent = False
            self._link.count(lent=-1)

    def end(self) -> None:
        """The conversation has ended, whoever waits for its children yet."""
        if not self._is_over:
            self._is_over = True
            lent, self._is_lent = int(self._is_lent), False
            self._link.count(running=-1, lent=-lent)


def _read(answer: pb.DescribeResponse) -> Description:
    """In a thread, as its schemas may be megabytes. Raises ValueError, PlacetError."""
    digests, handlers = read_description(answer)
    return Description(
        boot_id=answer.boot_id,
        concurrency_max=max(1, answer.concurrency_max),
        is_draining=answer.draining,
        digests=digests,
        handlers=handlers,
    )


def _credentials(settings: ConnectorSettings) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(settings.tls_ca, settings.private_key, settings.certificate)
