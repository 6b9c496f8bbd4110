"""A receiver of callbacks on this machine, that answers as it is told, in bytes."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from placet.webhooks import WebhookMessage, verify
from placet_server.core.kernel import Kernel
from placet_server.core.publication.callback import Callbacks, enqueue
from placet_server.core.publication.deliver import Deliverer, DeliverySettings
from placet_server.model.callback import APPROVAL_REQUESTED, Callback, Target
from placet_server.outbound.address import HostRules
from placet_server.outbound.http import HttpSender

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OLD_SECRET = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
TLS = httpx.create_ssl_context(trust_env=False)

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    def verified(self, *secrets: str) -> WebhookMessage:
        return verify(self.headers, self.body, secrets or (SECRET,))


class Receiver:
    """`answers` are used up in order, the last one for ever."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[Received] = []
        self.answers: list[Answer] = [says(204)]
        self.arrived = asyncio.Event()
        self.stopped = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/told"

    def events(self) -> list[Any]:
        return [json.loads(each.body) for each in self.received]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:-2])
            }
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Received(lines[0].split()[1], headers, body))
            self.arrived.set()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.stopped.set()


def says(status: int, *lines: str, body: bytes = b"") -> Answer:
    head = "".join(
        f"{line}\r\n" for line in (f"HTTP/1.1 {status} So", *lines, f"Content-Length: {len(body)}")
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()

    return answer


def sends(*parts: bytes, for_ever: bytes = b"", pause_seconds: float = 0.0) -> Answer:
    """The parts, then `for_ever` again and again, or nothing more; never an end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        while for_ever:
            writer.write(for_ever)
            await writer.drain()
            await asyncio.sleep(pause_seconds)
        await reader.read()

    return answer


@asynccontextmanager
async def open_receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


def target(receiver: Receiver | str, name: str = "desk", **members: Any) -> Target:
    url = receiver if isinstance(receiver, str) else receiver.url
    given = {"tenant": "acme", "types": ("dev.placet.approval.*",), "secrets": (SECRET,)} | members
    return Target(name=name, url=url, **given)


def aim(kernel: Kernel, *targets: Target, attempts_max: int = 12) -> Callbacks:
    callbacks = kernel.journal.callbacks
    callbacks.attempts_max = attempts_max
    callbacks.replace(targets)
    return callbacks


def deliverer(kernel: Kernel, *, hosts: tuple[str, ...] = ("loopback",), **settings: Any) -> Deliverer:
    sender = HttpSender(HostRules(hosts, settings="PLACET_CALLBACK"), TLS)
    given: dict[str, Any] = {"source": "/test", "attempt_seconds": 5.0, "close_seconds": 0.05} | settings
    return Deliverer(kernel.journal, sender, DeliverySettings(**given))


def callback(number: int = 1, **members: Any) -> Callback:
    given = {
        "tenant": "acme",
        "type": APPROVAL_REQUESTED,
        "subject": f"approvals/{number}",
        "key": "PENDING",
        "data": {"approval_id": str(number), "title": "Pay"},
    }
    return Callback(**(given | members))


async def tell(kernel: Kernel, *callbacks: Callback, stop: Exception | None = None) -> None:
    """In one tx, which `stop` ends."""
    async with kernel.journal.pool.tx() as connection:
        for each in callbacks:
            await enqueue(kernel.journal.callbacks, connection, each, None)
        if stop is not None:
            raise stop


async def send(sending: Deliverer) -> None:
    """Until nothing is due and nothing under way."""
    while await sending.run_once() or sending.in_flight:
        assert await sending.join(30)


async def stored(
    kernel: Kernel, columns: str = "state, attempts, last_status, last_error"
) -> list[tuple[Any, ...]]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(f"select {columns} from deliveries order by create_time, delivery_id")
    return [tuple(row) for row in rows]


async def make_due(kernel: Kernel) -> None:
    """As if the pause after an attempt, or a lease, were over."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update deliveries set next_time = now() where state = 'PENDING'")
