"""The issuer's keys: from a file or a URL, kept for a while, read again when a token names one that is not there."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import jwt

from placet_server.model.errors import Unauthenticated

if TYPE_CHECKING:
    from httpx import AsyncClient

log = logging.getLogger("placet.identity")

JWKS_BYTES_MAX = 256 * 1024
KEYS_MAX = 64

Read = Callable[[], Awaitable[bytes]]


class KeySetUnavailable(Exception):
    """The keys could not be read, now or ever."""


class KeySet:
    """Keys by id. Old ones stay in use while the source cannot be read."""

    def __init__(self, read: Read, *, refresh_seconds: float, refresh_seconds_min: float) -> None:
        """`refresh_seconds`: the age at which keys are read again; the other: the pause between two readings."""
        self._read = read
        self._refresh_seconds = refresh_seconds
        self._refresh_seconds_min = refresh_seconds_min
        self._keys: dict[str, jwt.PyJWK] = {}
        self._loaded_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def load(self) -> None:
        """First reading, at start. Raises KeySetUnavailable."""
        self._tried_at = monotonic()
        self._keys = _parsed(await self._read())
        self._loaded_at = monotonic()

    async def key(self, key_id: str) -> jwt.PyJWK:
        """Raises Unauthenticated if the issuer has no such key."""
        if key_id not in self._keys or monotonic() - self._loaded_at > self._refresh_seconds:
            await self._refresh()
        found = self._keys.get(key_id)
        if found is None:
            raise Unauthenticated(problem="signed with a key that the issuer does not have")
        return found

    async def _refresh(self) -> None:
        async with self._reading:
            if monotonic() - self._tried_at < self._refresh_seconds_min:
                return
            try:
                await self.load()
            except KeySetUnavailable as error:
                log.warning("the issuer's keys cannot be read, the old ones stay in use: %s", error)


def from_file(path: Path) -> Read:
    async def read() -> bytes:
        try:
            content = await asyncio.to_thread(_read_file, path)
        except OSError as error:
            raise KeySetUnavailable(f"{path}: {error.strerror}") from error
        return content

    return read


def from_url(url: str, *, timeout_seconds: float = 5.0) -> Read:
    """No redirects, no proxies from the environment, bounded in time and size."""
    # Half a second of import that only this source needs.
    import httpx

    async def read() -> bytes:
        try:
            async with asyncio.timeout(timeout_seconds), httpx.AsyncClient(trust_env=False) as client:
                return await _fetch(client, url)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise KeySetUnavailable(f"{url}: {type(error).__name__}") from error

    return read


async def _fetch(client: AsyncClient, url: str) -> bytes:
    async with client.stream("GET", url, headers={"accept": "application/json"}) as response:
        if response.status_code != 200:
            raise KeySetUnavailable(f"{url}: status {response.status_code}")
        content = b""
        async for part in response.aiter_bytes():
            content += part
            if len(content) > JWKS_BYTES_MAX:
                raise KeySetUnavailable(f"{url}: more than {JWKS_BYTES_MAX} bytes")
        return content


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(JWKS_BYTES_MAX)


def _parsed(content: bytes) -> dict[str, jwt.PyJWK]:
    """Keys without an id, for encryption, or of an unknown kind are left out."""
    try:
        keys = json.loads(content)["keys"][:KEYS_MAX]
    except (ValueError, TypeError, KeyError) as error:
        raise KeySetUnavailable("no JWKS document") from error
    found: dict[str, jwt.PyJWK] = {}
    for key in keys:
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("use", "sig") == "sig":
            try:
                found[key["kid"]] = jwt.PyJWK(key)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                log.info("a key of the issuer is left out: %s", key["kid"][:64])
    if not found:
        raise KeySetUnavailable("the JWKS document has no usable key")
    return found
