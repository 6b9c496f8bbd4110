"""`placet connect`: an app's tools behind a port that Placet dials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.app import load
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import AppReference, Json
from placet_server.cli.output import print_line, say

if TYPE_CHECKING:
    from placet.connector.option import ServeOptions
    from placet.connector.server import Connector

CONNECTOR_PORT = 7435
Placet = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The server whose tokens count. Default: $PLACET_TARGET, else the token file of `placet dev`.",
        show_default=False,
    ),
]
Jwks = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Instead: its public keys, as a JSON Web Key Set.", show_default=False),
]
Issuer = Annotated[
    str, typer.Option(help="The name that tokens must carry. Default: any.", show_default=False)
]
Tenants = Annotated[
    list[str] | None,
    typer.Option(help="For whom it works; may be given again. Default: all.", show_default=False),
]
Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Ask for no token; on loopback, or with --tls-client-ca.")
]
Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its certificate, PEM.", show_default=False)
]
PrivateKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.", show_default=False)
]
ClientAuthority = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Only who has a certificate of this CA may dial, PEM.", show_default=False
    ),
]
Plaintext = Annotated[bool, typer.Option("--plaintext", help="Without TLS beyond loopback, for a mesh.")]
Drain = Annotated[float, typer.Option(min=0, help="For what still runs when it is told to end.")]


def connect(
    app: AppReference,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = CONNECTOR_PORT,
    placet: Placet = None,
    jwks: Jwks = None,
    issuer: Issuer = "",
    tenant: Tenants = None,
    unchecked: Unchecked = False,
    tls_certificate: Certificate = None,
    tls_key: PrivateKey = None,
    tls_client_ca: ClientAuthority = None,
    plaintext: Plaintext = False,
    concurrency_max: Annotated[int, typer.Option(min=1, max=10_000, help="Attempts at once.")] = 64,
    drain_seconds: Drain = 30.0,
    is_json: Json = False,
) -> int:
    """Serve an app's tools as a connector, which Placet dials.

    Every attempt brings a token that Placet has signed for it. SIGTERM drains: what runs ends and is told, nothing new
    begins; a second one hurries.

    \b
    Examples:
      placet connect --app shop:app
      placet connect --app shop:app --placet placet.internal:7433 --tenant acme
      placet connect --app shop:app --unchecked --port 0 --json
      placet connect --app shop:app --jwks keys.json --host 0.0.0.0 --tls-certificate tls.crt --tls-key tls.key
    """
    options: ServeOptions = {
        "unchecked": unchecked,
        "plaintext": plaintext,
        "issuer": issuer,
        "tenants": tenant or (),
        "concurrency_max": concurrency_max,
        "drain_seconds": drain_seconds,
    }
    if placet is not None:
        options["placet"] = placet
    if jwks is not None:
        options["jwks"] = jwks
    if tls_certificate or tls_key or tls_client_ca:
        from placet.connection import Tls

        options["tls"] = Tls(ca=tls_client_ca, certificate=tls_certificate, key=tls_key)
    return _serve(app, host, port, options, is_json=is_json)


def _serve(reference: str, host: str, port: int, options: ServeOptions, *, is_json: bool) -> int:
    import logging

    from placet.connector.option import settings_of
    from placet.connector.server import ServeError, run

    def ready(connector: Connector) -> None:
        tools = [f"{tool.name}@{tool.version}" for tool in connector.app.tools]
        if is_json:
            document = {"target": connector.target, "boot_id": connector.boot_id, "capabilities": tools}
            print_line({"ready": document})
        else:
            say(f"{connector.app.name} is ready on {connector.target}: {', '.join(tools)}")

    # Of the author's own handlers, too, as far as they log.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    loaded = load(reference)
    try:
        run(loaded, settings_of(loaded, host, port, options), ready)
    except ServeError as error:
        raise Complaint(str(error), ExitCode.REFUSED, "SERVE_REFUSED") from None
    return ExitCode.SUCCEEDED
