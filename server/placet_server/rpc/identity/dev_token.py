"""The tokens of `placet dev`: made by the server, each in a file that only its owner reads, good on loopback alone.

One of the developer; and one more for each person that the configuration names, so that what needs several people can
be tried on one machine."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placet_server.config import Config
from placet_server.model.caller import EVERY_SCOPE, Caller, Login
from placet_server.rpc.identity.source import Known

TOKEN_BYTES = 32
_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class DevLogin:
    """Who is known by the token in a file."""

    path: Path
    token: str
    caller: Caller


class DevTokens:
    """Each is one caller with every scope."""

    def __init__(self, logins: Sequence[DevLogin]) -> None:
        self._known = [
            (login.token.encode(), Known(caller=login.caller, expire_time=None)) for login in logins
        ]

    async def establish(self, token: str) -> Known | None:
        given = token.encode()
        return next((known for own, known in self._known if hmac.compare_digest(given, own)), None)


def dev_logins(config: Config) -> list[DevLogin]:
    """The developer's and those of dev_people, with the tokens of their files or new ones; none without identity_dev.

    They have logged in now, as far as anybody can say."""
    if not config.identity_dev:
        return []
    login = Login(strength="dev", time_us=time.time_ns() // 1000)
    file = config.token_file
    people = [(file, config.dev_subject, "")]
    for person in config.dev_people:
        subject, _, roles = person.partition(":")
        people.append((file.with_name(f"{file.name}.{subject}"), subject, roles))
    return [
        DevLogin(
            path=path,
            token=stored_or_new_token(path),
            caller=Caller(
                tenant=config.dev_tenant,
                subject=subject,
                roles=tuple(sorted(filter(None, roles.split("+")))),
                scopes=frozenset({EVERY_SCOPE}),
                login=login,
                identity_source="dev_token",
            ),
        )
        for path, subject, roles in people
    ]


def write_token_files(logins: Sequence[DevLogin], *, target: str, health_target: str) -> None:
    for login in logins:
        write_token_file(login.path, token=login.token, target=target, health_target=health_target)


def stored_or_new_token(path: Path) -> str:
    """The token of the file if only its owner could have read or written it, else a new one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return secrets.token_urlsafe(TOKEN_BYTES)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        private = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == _FILE_MODE
        token = _token_of(file.read(4096)) if private and status.st_uid == os.geteuid() else ""
    return token or secrets.token_urlsafe(TOKEN_BYTES)


def write_token_file(path: Path, *, token: str, target: str, health_target: str) -> None:
    """Replaces the file in one step; at no time can anybody else read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"target": target, "token": token, "health_target": health_target})
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE
    )
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content + "\n")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _token_of(content: bytes) -> str:
    try:
        document = json.loads(content)
    except ValueError:
        return ""
    token = document.get("token") if isinstance(document, dict) else None
    return token if isinstance(token, str) and len(token) >= TOKEN_BYTES and token.isascii() else ""
