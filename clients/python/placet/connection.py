"""Where the server is and how to reach it: arguments, environment, or the token file that `placet dev` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from placet.errors import TargetError

TARGET_VARIABLE = "PLACET_TARGET"
TOKEN_VARIABLE = "PLACET_TOKEN"
TOKEN_FILE_VARIABLE = "PLACET_TOKEN_FILE"
TOKEN_FILE = Path(".placet", "token")

MESSAGE_BYTES_MAX = 20 * 1024 * 1024
KEEPALIVE_TIMEOUT_MS = 10_000

Token = str | Callable[[], str]
AsyncToken = str | Callable[[], str | Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM, as bytes or the path of a file.

    Without `ca` the system's roots count; certificate and key make it mutual.
    """

    ca: bytes | str | Path | None = None
    certificate: bytes | str | Path | None = None
    key: bytes | str | Path | None = None
    server_name: str | None = None
    """The name that the server's certificate must have, when the target is not that name."""

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(pem(self.ca), pem(self.key), pem(self.certificate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`token` is "" for none; `tls` None is plaintext."""

    target: str
    token: AsyncToken
    tls: Tls | None

    def options(self) -> list[tuple[str, str | int]]:
        """Channel options. Retries are ours: gRPC's own know nothing of keys."""
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            # What grpc 1.85 goes by: it arms no keepalive timeout below this one, which is a minute unless said.
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ]
        if is_local(self.target):
            options.append(("grpc.enable_http_proxy", 0))
        if self.tls is not None and self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


def find_address(
    target: str | None = None,
    token: AsyncToken | None = None,
    tls: Tls | bool | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Address:
    """What is not given comes from $PLACET_TARGET and $PLACET_TOKEN, then from the token file: $PLACET_TOKEN_FILE,
    or the nearest .placet/token from the working folder upward. A file's token goes to that file's target alone.
    `tls` None means plaintext on loopback and unix sockets, TLS elsewhere; False is plaintext wherever it leads.
    Raises TargetError.
    """
    variables = os.environ if environment is None else environment
    found_target = target or variables.get(TARGET_VARIABLE)
    found_token = variables.get(TOKEN_VARIABLE) if token is None else token
    if not found_target or not found_token:
        file_target, file_token = _token_file(variables, folder or Path.cwd(), asked=not found_target)
        if not found_target:
            found_target = file_target
        if not found_token and found_target == file_target:
            found_token = file_token
    if not found_target:
        raise TargetError(
            f"no server is named: run `placet dev` in this folder, set ${TARGET_VARIABLE}, or pass target='host:port'"
        )
    return Address(target=found_target, token=found_token or "", tls=_tls(tls, found_target))


def find_token_file(variables: Mapping[str, str], folder: Path) -> Path | None:
    """$PLACET_TOKEN_FILE, or the nearest .placet/token from the folder upward; None if there is none."""
    named = variables.get(TOKEN_FILE_VARIABLE)
    places = [Path(named)] if named else [place / TOKEN_FILE for place in (folder, *folder.parents)]
    return next((place for place in places if place.is_file()), None)


def _tls(tls: Tls | bool | None, target: str) -> Tls | None:
    if isinstance(tls, Tls):
        return tls
    if tls is None:
        tls = not is_local(target)
    return Tls() if tls else None


def is_local(target: str) -> bool:
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    authority = target.rsplit("/", 1)[-1]
    host = authority[1:].split("]")[0] if authority.startswith("[") else authority.rsplit(":", 1)[0]
    return (
        host == "localhost" or host == "::1" or (host.startswith("127.") and host.replace(".", "").isdigit())
    )


def _token_file(variables: Mapping[str, str], folder: Path, *, asked: bool) -> tuple[str, str]:
    """Target and token of the file, or two empty texts when there is none. `asked`: nothing else names a target."""
    path = find_token_file(variables, folder)
    if path is None:
        named = variables.get(TOKEN_FILE_VARIABLE)
        if named and asked:
            raise TargetError(
                f"${TOKEN_FILE_VARIABLE} names {named}, which does not exist; is `placet dev` running?"
            )
        return "", ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return str(content["target"]), str(content["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not asked:
            return "", ""
        raise TargetError(
            f"{path} cannot be read as a token file ({error!r}); start `placet dev` again"
        ) from None


def pem(source: bytes | str | Path | None) -> bytes | None:
    """Raises OSError for a file that cannot be read."""
    return source if source is None or isinstance(source, bytes) else Path(source).read_bytes()
