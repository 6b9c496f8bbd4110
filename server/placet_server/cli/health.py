"""`placet health`: for people, and for container probes."""

from __future__ import annotations

import os
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, seconds_of
from placet_server.cli.output import print_document, print_table

if TYPE_CHECKING:
    import grpc

CHECKS = ("live", "ready", "storage")
DEFAULT_PORT = 7434
ANSWER_SECONDS = 2.0
POLL_SECONDS = 0.1
_METHOD = "/grpc.health.v1.Health/Check"
_WORDS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def health(
    target: Annotated[
        str | None,
        typer.Option(
            help="Health port, host:port. Default: $PLACET_HEALTH_TARGET, else $PLACET_HEALTH_PORT here, else the "
            "token file of `placet dev`, else 127.0.0.1:7434.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option(metavar="SPAN", help="Wait so long at most for all to serve: 30s.")
    ] = "",
    is_json: Json = False,
) -> int:
    """Is the server well?

    Three checks: it is alive, it takes calls, its store reads and writes. Exit code 0 if all three, 11 if not.

    \b
    Examples:
      placet health
      placet health --wait 30s && placet call orders.lookup '{"order": "A-1001"}'
      placet health --target 10.0.0.5:7434 --json
    """
    end = time.monotonic() + (seconds_of(wait, "--wait") if wait else 0.0)
    while True:
        # A server that is only starting has yet to write where it is.
        where = target or default_target()
        found = check(where)
        if is_well(found) or time.monotonic() >= end:
            break
        time.sleep(POLL_SECONDS)
    if is_json:
        print_document({"target": where, "ok": is_well(found), "checks": found})
    else:
        rows = [(name, found[name]) for name in CHECKS]
        print_table(("CHECK", where), rows, empty="")
    return ExitCode.SUCCEEDED if is_well(found) else ExitCode.UNAVAILABLE


def check(target: str, seconds: float = ANSWER_SECONDS) -> dict[str, str]:
    """Each check's word, or "UNREACHABLE"."""
    from placet.aside import Aside

    # Ctrl-C in the middle of gRPC would never end.
    with closing(Aside()) as aside:
        return aside.do(partial(_check, target, seconds))


def _check(target: str, seconds: float) -> dict[str, str]:
    import grpc

    options = (("grpc.enable_http_proxy", 0),)
    with grpc.insecure_channel(target, options) as channel:
        return {name: _ask(channel, name, seconds) for name in CHECKS}


def _ask(channel: grpc.Channel, name: str, seconds: float) -> str:
    """grpc.health.v1 without its package, which the base install lacks: its request and response have one field, number
    1, and so the same bytes as these wrappers."""
    import grpc
    from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

    call = channel.unary_unary(
        _METHOD,
        request_serializer=StringValue.SerializeToString,
        response_deserializer=UInt32Value.FromString,
    )
    try:
        answer = call(StringValue(value=name), timeout=seconds)
    except grpc.RpcError as error:
        refused = getattr(error, "code", lambda: None)()
        return "SERVICE_UNKNOWN" if refused == grpc.StatusCode.NOT_FOUND else "UNREACHABLE"
    return _WORDS.get(answer.value, str(answer.value))


def is_well(found: dict[str, str]) -> bool:
    return all(word == "SERVING" for word in found.values())


def default_target() -> str:
    named = os.environ.get("PLACET_HEALTH_TARGET")
    if named:
        return named
    port = os.environ.get("PLACET_HEALTH_PORT", "")
    if port.isdecimal() and port != "0":
        return f"127.0.0.1:{port}"
    return _of_token_file() or f"127.0.0.1:{DEFAULT_PORT}"


def _of_token_file() -> str:
    import json
    from pathlib import Path

    from placet.connection import find_token_file

    path = find_token_file(os.environ, Path.cwd())
    try:
        return "" if path is None else str(json.loads(path.read_text(encoding="utf-8"))["health_target"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
