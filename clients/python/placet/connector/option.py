"""From what an author says about serving to what is served, and whom it believes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from placet.app import App
from placet.connection import Tls, is_local
from placet.connector.server import CONCURRENCY_MAX, DRAIN_SECONDS, ServeError, Settings
from placet.connector.token import SignedTokens, TokenCheck, Unchecked

if TYPE_CHECKING:
    from placet.connector.signing_key import Read

EXTRA_COMMAND = "pip install 'placet[connector]'"
CONCURRENCY_LIMIT = 10_000


class ServeOptions(TypedDict, total=False):
    """What `App.serve` may be told.

    `placet`, `jwks`: whose invocation tokens count: those of the server there, host:port, or by the keys in a file.
    Without both it is the server that `Client.connect()` would find. `issuer`: the name that tokens must carry besides.
    `tenants`: for whom it works, all unless said: on a server that several share, any of them may admit this address.
    `unchecked`: no token is asked for, where nobody else can dial: on loopback, or with client certificates.
    `tls`: this process's certificate and key; its `ca` is whose client certificates may dial. `plaintext`: without TLS
    beyond loopback. `concurrency_max`: attempts at once. `drain_seconds`: for what runs, once it is asked to end.
    """

    placet: str
    jwks: str | Path
    issuer: str
    tenants: Collection[str]
    unchecked: bool
    tls: Tls | None
    plaintext: bool
    concurrency_max: int
    drain_seconds: float


def settings_of(app: App, host: str, port: int, options: ServeOptions) -> Settings:
    """Raises ServeError."""
    tls = options.get("tls")
    if tls is None and not is_local(f"{host}:{port}") and not options.get("plaintext"):
        raise ServeError(f"{host} is not loopback: give tls, or say plaintext if something else encrypts")
    concurrency_max = options.get("concurrency_max", CONCURRENCY_MAX)
    if not 1 <= concurrency_max <= CONCURRENCY_LIMIT:
        raise ServeError(f"concurrency_max is from 1 to {CONCURRENCY_LIMIT}")
    return Settings(
        host=host,
        port=port,
        tokens=_tokens(app, host, port, options),
        tls=tls,
        tenants=frozenset(options.get("tenants", ())),
        concurrency_max=concurrency_max,
        drain_seconds=max(0.0, options.get("drain_seconds", DRAIN_SECONDS)),
    )


def _tokens(app: App, host: str, port: int, options: ServeOptions) -> TokenCheck:
    if options.get("unchecked"):
        if "placet" in options or "jwks" in options:
            raise ServeError("unchecked, placet and jwks exclude each other")
        tls = options.get("tls")
        if not is_local(f"{host}:{port}") and (tls is None or tls.ca is None):
            raise ServeError("unchecked needs loopback, or a ca of clients: anybody could have the tools run")
        return Unchecked()
    try:
        from placet.connector.signing_key import SigningKeys
    except ModuleNotFoundError as error:
        raise ServeError(f"checking tokens needs {error.name!r}: {EXTRA_COMMAND}") from None
    return SignedTokens(app.name, SigningKeys(_source(options)), options.get("issuer", ""))


def _source(options: ServeOptions) -> Read:
    if "jwks" not in options:
        return _server(options.get("placet"))
    from placet.connector.signing_key import KeysUnavailable, from_file, parsed

    if "placet" in options:
        raise ServeError("placet and jwks exclude each other")
    read = from_file(Path(options["jwks"]))
    try:
        parsed(asyncio.run(read()))
    except KeysUnavailable as error:
        raise ServeError(f"jwks: {error}") from None
    return read


def _server(target: str | None) -> Read:
    """It need not be there yet."""
    from placet.aio import AsyncClient
    from placet.connection import find_address
    from placet.connector.signing_key import from_server
    from placet.errors import TargetError

    try:
        find_address(target)
    except TargetError as error:
        raise ServeError(f"whose tokens count? Give placet, jwks or unchecked; {error}") from None
    return from_server(lambda: AsyncClient.connect(target))
