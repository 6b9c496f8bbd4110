"""One POST to a host that is allowed: to the address that was checked, with its name in TLS, within one span of time.

httpcore is the client, because how it connects is a parameter of its own: a name that was checked here is not looked
up again there. It follows no redirect and asks no proxy of the environment. Each request has a connection of its own,
which is closed after it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import httpcore

from placet_server.outbound.address import HostRefused, HostRules
from placet_server.outbound.lookup import Address

URL_LENGTH_MAX = 2048
# What is read of a response beside its head, so that it may end in order. The head has httpcore's own bound, 100 KiB.
BODY_BYTES_MAX = 16 * 1024
BODY_SECONDS_MAX = 1.0
CONNECT_SECONDS_MAX = 3.0
DETAIL_LENGTH_MAX = 300

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!-\"$->@-~]*)?(?P<query>\?[!-\"$-~]*)?"
)
_CONTROL = re.compile(r"[^\x20-\x7e]+")


class UrlRefused(ValueError):
    """The text is for whoever wrote it."""


class SendFailed(Exception):
    """There is no answer; whether the receiver has got it is not known, unless `not_sent`."""

    def __init__(self, detail: str, *, not_sent: bool = False) -> None:
        super().__init__(_CONTROL.sub("?", detail)[:DETAIL_LENGTH_MAX])
        self.not_sent = not_sent


class Url(NamedTuple):
    """`host` without brackets; `path` with the query."""

    text: str
    is_plaintext: bool
    host: str
    port: int
    authority: str
    path: str

    @property
    def target(self) -> str:
        """As `HostRules` reads it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Answer(NamedTuple):
    """`retry_after` as it was sent, or empty."""

    status: int
    retry_after: str


def url_of(text: str) -> Url:
    """No user, no fragment, and nothing that has to be escaped. Raises UrlRefused."""
    match = _URL.fullmatch(text) if len(text) <= URL_LENGTH_MAX else None
    if match is None:
        raise UrlRefused(
            f"a URL is http(s)://host[:port]/path in visible ASCII, without user and fragment, "
            f"at most {URL_LENGTH_MAX} characters"
        )
    is_plaintext = match["scheme"] == "http"
    host, port = match["host"].lower(), match["port"]
    return Url(
        text=text,
        is_plaintext=is_plaintext,
        host=host.strip("[]"),
        port=int(port or (80 if is_plaintext else 443)),
        authority=f"{host}:{port}" if port else host,
        path=(match["path"] or "/") + (match["query"] or ""),
    )


class HttpSender:
    """Belongs to one event loop."""

    def __init__(self, rules: HostRules, tls: ssl.SSLContext) -> None:
        self.rules = rules
        self._tls = tls

    async def post(
        self, url: Url, headers: Iterable[tuple[str, str]], body: bytes, *, seconds: float
    ) -> Answer:
        """What the head of the response says, whatever becomes of the rest. Raises SendFailed."""
        said: list[Answer] = []
        try:
            async with asyncio.timeout(seconds) as limit:
                addresses = await self._resolved(url)
                await self._send(url, addresses, headers, body, said, limit)
        except httpcore.ConnectError as error:
            raise SendFailed(
                f"it cannot be reached: {str(error) or 'no connection'}", not_sent=True
            ) from error
        except (TimeoutError, httpcore.TimeoutException) as error:
            if not said:
                raise SendFailed(f"no answer within {seconds:g} s") from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            if not said:
                raise SendFailed(f"no answer: {str(error) or type(error).__name__}") from error
        return said[0]

    async def _resolved(self, url: Url) -> tuple[Address, ...]:
        try:
            return await self.rules.resolve(url.target, plaintext=url.is_plaintext)
        except HostRefused as refused:
            raise SendFailed(str(refused), not_sent=True) from refused
        except OSError as error:
            raise SendFailed(f"its name cannot be looked up: {error}", not_sent=True) from error

    async def _send(
        self,
        url: Url,
        addresses: Sequence[Address],
        headers: Iterable[tuple[str, str]],
        body: bytes,
        said: list[Answer],
        limit: asyncio.Timeout,
    ) -> None:
        sent = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
        sent += [(b"host", url.authority.encode("ascii")), (b"connection", b"close")]
        # From its parts, so that nobody parses it a second time, in another way.
        address = httpcore.URL(
            scheme="http" if url.is_plaintext else "https", host=url.host, port=url.port, target=url.path
        )
        pool = httpcore.AsyncConnectionPool(ssl_context=self._tls, network_backend=_Pinned(addresses))
        async with pool, pool.stream("POST", address, headers=sent, content=body) as response:
            said.append(Answer(response.status, _retry_after(response)))
            limit.reschedule(asyncio.get_running_loop().time() + BODY_SECONDS_MAX)
            await _read_some(response)


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to what was checked, whatever name it is asked for."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The first that answers."""
        failed: Exception = httpcore.ConnectError("no address")
        for address in self._addresses:
            try:
                return await self._backend.connect_tcp(str(address), port, timeout=CONNECT_SECONDS_MAX)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise httpcore.ConnectError(str(failed) or "no connection") from failed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _read_some(response: httpcore.Response) -> None:
    """So that it may end in order; closing cuts the rest."""
    size = 0
    async with aclosing(_parts(response)) as parts:
        async for part in parts:
            size += len(part)
            if size > BODY_BYTES_MAX:
                return


async def _parts(response: httpcore.Response) -> AsyncGenerator[bytes, None]:
    async for part in response.aiter_stream():
        yield part


def _retry_after(response: httpcore.Response) -> str:
    values = [value for name, value in response.headers if name.lower() == b"retry-after"]
    return values[0][:64].decode("ascii", "replace") if values else ""
