"""Sessions: conversations with agents, each an order of runs of which at most one is not over."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

# For having them, and for runs in them.
SESSION_SCOPE = "sessions.use"
WAITING_MAX = 16
"""So many runs of a session wait for their turn."""
OPEN_MAX_DEFAULT = 10_000
"""So many sessions of one subject are open."""
IDLE_SECONDS_DEFAULT = 30 * 86400.0


class OnBusy(StrEnum):
    """What becomes of a run whose session has one that is not over."""

    REFUSE = "REFUSE"
    QUEUE = "QUEUE"
    CANCEL_PREVIOUS = "CANCEL_PREVIOUS"


class SessionState(StrEnum):
    OPEN = "OPEN"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUse:
    """In which session something is to run, and what if that is busy."""

    session_id: str
    on_busy: OnBusy = OnBusy.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """`agent` "": any. `idle_seconds`: after so long without a run it is over."""

    agent: str = ""
    title: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    idle_seconds: float = IDLE_SECONDS_DEFAULT
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`active_action_id`: the run that is not over, and has its turn; None: there is none. `resume_token`: told to
    whoever has made one, and to nobody else.
    """

    session_id: str
    agent: str
    subject: str
    state: SessionState
    title: str
    labels: dict[str, str]
    active_action_id: str | None
    run_count: int
    create_time_us: int
    update_time_us: int
    expire_time_us: int
    resume_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Which run of which session an action is."""

    session_id: str
    number: int
