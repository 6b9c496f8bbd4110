"""Placet's public keys: from a file, or asked of a server; kept, and read again when a token names one that is not
there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import jwt

if TYPE_CHECKING:
    from placet.aio import AsyncClient

JWKS_BYTES_MAX = 256 * 1024
KEYS_MAX = 64
READ_SECONDS = 5.0
# So that tokens with made-up keys cannot make us ask all the time.
PAUSE_SECONDS = 10.0
PAUSE_AFTER_FAULT_SECONDS = 1.0

log = logging.getLogger("placet.connector")

Read = Callable[[], Coroutine[Any, Any, bytes]]


class KeysUnavailable(Exception):
    """The keys cannot be read now, or what was read has none."""


class SigningKeys:
    """Ed25519 keys by id. Old ones stay in use while the source cannot be read."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._keys: dict[str, jwt.PyJWK] = {}
        self._next_read = float("-inf")
        self._reading = asyncio.Lock()

    async def load(self) -> None:
        """Raises KeysUnavailable."""
        self._next_read = monotonic() + PAUSE_AFTER_FAULT_SECONDS
        self._keys = parsed(await self._read())
        self._next_read = monotonic() + PAUSE_SECONDS

    async def warm(self) -> None:
        """Reads them; if they cannot be read, that is logged, and they are read when a token comes."""
        await self._refresh()

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """None: there is no such key. Raises KeysUnavailable if there is none at all."""
        if key_id not in self._keys:
            await self._refresh()
        if not self._keys:
            raise KeysUnavailable("no key could be read yet")
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        async with self._reading:
            if monotonic() < self._next_read:
                return
            try:
                await self.load()
            except KeysUnavailable as error:
                log.warning("Placet's signing keys cannot be read: %s", error)


def from_file(path: Path) -> Read:
    async def read() -> bytes:
        try:
            return await asyncio.to_thread(_read_file, path)
        except OSError as error:
            raise KeysUnavailable(f"{path}: {error.strerror or error}") from error

    return read


def from_server(connect: Callable[[], AbstractAsyncContextManager[AsyncClient]]) -> Read:
    """Asked with GetServerInfo, as whoever the environment or the token file says that we are."""

    async def read() -> bytes:
        from placet.errors import PlacetError

        try:
            async with connect() as client:
                info = await client.server_info(timeout=READ_SECONDS)
        except PlacetError as error:
            raise KeysUnavailable(str(error)) from error
        return info.signing_keys_json.encode()

    return read


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(JWKS_BYTES_MAX + 1)


def parsed(content: bytes) -> dict[str, jwt.PyJWK]:
    """By id; keys of another kind, or without an id, are left out. Raises KeysUnavailable."""
    if len(content) > JWKS_BYTES_MAX:
        raise KeysUnavailable(f"more than {JWKS_BYTES_MAX} bytes")
    try:
        listed = json.loads(content)["keys"][:KEYS_MAX]
    except (ValueError, TypeError, KeyError) as error:
        raise KeysUnavailable("not a JWKS document") from error
    found: dict[str, jwt.PyJWK] = {}
    for key in listed:
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("crv") == "Ed25519":
            try:
                found[key["kid"]] = jwt.PyJWK(key, algorithm="EdDSA")
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                log.info("a signing key is left out: %s", key["kid"][:64])
    if not found:
        raise KeysUnavailable("the JWKS document has no Ed25519 key")
    return found
