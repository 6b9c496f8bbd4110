"""What a source of identity is, and what every source checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from placet_server.model.caller import Caller
from placet_server.model.errors import Unauthenticated

# "-" alone is the server's own tenant.
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
SUBJECT_LENGTH_MAX = 256
NAMES_MAX = 64
NAME_LENGTH_MAX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A caller and how long the evidence holds: seconds since the epoch, None for ever."""

    caller: Caller
    expire_time: float | None


class TokenSource(Protocol):
    """Turns a bearer token into a caller."""

    async def establish(self, token: str) -> Known | None:
        """None if the token is not of this source. Raises Unauthenticated if it is and does not hold."""


class CertificateSource(Protocol):
    """Turns what TLS knows of its peer into a caller."""

    def evidence(self, auth_context: Mapping[str, Iterable[bytes]]) -> bytes | None:
        """The peer's certificate; None on a connection without one."""

    def establish(self, certificate: bytes) -> Known:
        """Raises Unauthenticated."""


def is_text(word: str) -> bool:
    """No control characters, and no halves of surrogates: a caller that has one cannot be written down."""
    return _NO_TEXT.search(word) is None


def check_tenant(tenant: object) -> str:
    """Raises Unauthenticated unless it is a tenant name."""
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise Unauthenticated(problem="no valid tenant")
    return tenant


def check_subject(subject: object) -> str:
    """Raises Unauthenticated unless it is a printable text of at most 256 characters."""
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= SUBJECT_LENGTH_MAX
        or not subject.isprintable()
    ):
        raise Unauthenticated(problem="no valid subject")
    return subject


def check_names(names: list[str], what: str) -> list[str]:
    """Roles or scopes: distinct and sorted. Raises Unauthenticated for too many, too long or unwritable ones."""
    distinct = sorted(set(names))
    if len(distinct) > NAMES_MAX or any(not 0 < len(name) <= NAME_LENGTH_MAX for name in distinct):
        raise Unauthenticated(problem=f"too many or too long {what}")
    if not all(map(is_text, distinct)):
        raise Unauthenticated(problem=f"no valid {what}")
    return distinct
