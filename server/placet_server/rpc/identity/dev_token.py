"""The token of `placet dev`: made by the server, kept in a file that only its owner reads, good on loopback alone."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from pathlib import Path

from placet_server.model.caller import Caller
from placet_server.rpc.identity.source import Known
from placet_server.rpc.permission import EVERY_SCOPE

TOKEN_BYTES = 32
_FILE_MODE = 0o600


class DevToken:
    """One token, one caller with every scope."""

    def __init__(self, token: str, *, tenant: str, subject: str) -> None:
        self.token = token
        self._expected = token.encode()
        caller = Caller(
            tenant=tenant, subject=subject, scopes=frozenset({EVERY_SCOPE}), identity_source="dev_token"
        )
        self._known = Known(caller=caller, expire_time=None)

    async def establish(self, token: str) -> Known | None:
        return self._known if hmac.compare_digest(token.encode(), self._expected) else None


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
