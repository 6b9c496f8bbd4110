"""What stands between a caller who is known and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError

OPEN_SESSIONS = "open_sessions"


@dataclass(kw_only=True, eq=False)
class MessageReplayed(PlacetError):
    """`problem`: claimed, too_old or in_the_future."""

    reason: ClassVar[str] = "MESSAGE_REPLAYED"
    code = Code.ALREADY_EXISTS
    message_id: str
    problem: str

    def text(self) -> str:
        if self.problem == "claimed":
            return "A message with this id has asked for something else; a new message needs a new id."
        return f"The message was not made about now ({self.problem}); it is not taken, as it may be a replay."


@dataclass(kw_only=True, eq=False)
class QuotaExceeded(PlacetError):
    """`quota`: admissions_per_second, open_actions or stored_bytes, of the caller's tenant, or OPEN_SESSIONS, of the
    caller.
    """

    reason: ClassVar[str] = "QUOTA_EXCEEDED"
    code = Code.RESOURCE_EXHAUSTED
    quota: str
    quota_max: float
    retry_delay_seconds: float | None = None

    def text(self) -> str:
        if self.quota == OPEN_SESSIONS:
            return f"You have {self.quota_max} sessions open, and may have no more; close some that you need no longer."
        return f"Your tenant is at its quota of {self.quota_max} {self.quota}; nothing was stored, send it again later."


@dataclass(kw_only=True, eq=False)
class AuthorityUnavailable(PlacetError):
    reason: ClassVar[str] = "AUTHORITY_UNAVAILABLE"
    code = Code.UNAVAILABLE
    retry_delay_seconds: float | None = 1.0

    def text(self) -> str:
        return "Who may decide cannot be known now, so nothing was decided; send the same decision again."
