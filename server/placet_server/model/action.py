"""What is asked for (Invocation) and the one record of it (Action).

Times are microseconds since the epoch, by the store's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from placet_server.model.caller import Credential, Delegate, Login
from placet_server.model.contract import Backoff
from placet_server.model.durability import DurabilityClass
from placet_server.model.lifecycle import CHILD, SESSION, TERMINAL, ActionState
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.model.session import SessionUse
from placet_server.model.wait import Wait

QUEUE_DEFAULT = "default"
PRIORITY_DEFAULT = 5


class OnCallerGone(StrEnum):
    CANCEL = "CANCEL"
    DETACH = "DETACH"


class OnWait(StrEnum):
    """What a call does with an action that waits for people."""

    FAIL = "FAIL"
    RETURN = "RETURN"
    HOLD = "HOLD"


class OnDuplicate(StrEnum):
    ATTACH = "ATTACH"
    REFUSE = "REFUSE"


@dataclass(slots=True, kw_only=True)
class Invocation:
    """As the caller sent it, and never changed; `input_json` is not checked yet."""

    capability: str
    version: str = ""
    input_json: str
    idempotency_key: str = ""
    timeout_seconds: float | None = None
    on_caller_gone: OnCallerGone = OnCallerGone.CANCEL
    # It says CANCEL, and does not leave it to what that is by default.
    ends_with_its_caller: bool = False
    on_wait: OnWait = OnWait.FAIL
    on_duplicate: OnDuplicate = OnDuplicate.ATTACH
    require_durability: DurabilityClass | None = None
    labels: dict[str, str] = field(default_factory=dict)
    # Of an agent, in which session.
    session: SessionUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Which message it is that asks, as its caller says: an id of the caller's own, and when it was made."""

    message_id: str
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Where a submitted action waits: 0 is the first priority, 9 the last, and it is not run before `ready_time_us`, or
    before so long after it was stored.
    """

    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    ready_time_us: int | None = None
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The part of a Caller that is kept with the action."""

    tenant: str
    subject: str
    kind: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    delegation: tuple[Delegate, ...] = ()
    login: Login | None = None
    credential: Credential | None = None

    def __hash__(self) -> int:
        # It is a key of caches on the hot path, and these two tell nearly all requesters apart.
        return hash((self.tenant, self.subject))


@dataclass(kw_only=True)
class Action:
    """One row, as it was read or written: never changed in place, only by `changed`.

    Not frozen and without slots, because the hot path makes three of them per call, and with forty members a frozen
    one costs ten times as much to make and to change.

    `input_json` and `output_json` are None where the view leaves them out. Digests are hex."""

    action_id: str
    requester: Requester
    capability: str
    version: str
    contract_digest: str
    effect_class: str
    effect_marked: bool = False
    state: ActionState
    input_json: str | None
    input_digest: str
    output_json: str | None = None
    idempotency_key: str = ""
    on_caller_gone: OnCallerGone = OnCallerGone.CANCEL
    labels: dict[str, str] = field(default_factory=dict)
    attempt: int = 0
    attempts_max: int = 1
    effect: EffectState | None = None
    effect_begun: bool = False
    effect_unknown: bool = False
    reason: str | None = None
    cause: str | None = None
    message: str = ""
    failure_code: str = ""
    failure_category: FailureCategory | None = None
    retry_delay_seconds: float | None = None
    key_released: bool = False
    provider_operation: str = ""
    provider_cursor_json: str | None = None
    lease_id: str | None = None
    instance_id: str | None = None
    create_time_us: int = 0
    start_time_us: int | None = None
    settle_time_us: int | None = None
    ready_time_us: int | None = None
    deadline_us: int | None = None
    cancel_requested_time_us: int | None = None
    effect_key_expire_time_us: int | None = None
    key_expire_time_us: int | None = None
    durability: DurabilityClass = DurabilityClass.EPHEMERAL
    sequence: int = 1
    receipt_digest: str = ""
    predecessor_id: str | None = None
    # What only submitted actions have. `generation` grows with every redrive, and `budget_time_us` is when the first
    # attempt of this generation began.
    queue: str = ""
    priority: int = 0
    attempt_timeout_seconds: float | None = None
    queue_delay_seconds: float | None = None
    backoff: Backoff | None = None
    budget_time_us: int | None = None
    generation: int = 1
    # What only children have: who called them, the first who called at all, and as which step of the parent.
    parent_id: str | None = None
    root_id: str | None = None
    step_path: str = ""
    # Hex; None: admitted before there were policies.
    verdict_digest: str | None = None
    # What only those have that people have to say yes to: the newest approval; and, if whoever read it has looked, what
    # it waits for.
    approval_id: str | None = None
    waits: tuple[Wait, ...] = ()
    # Of an open COMPOSED one, if whoever read it has looked: none of its steps can have done anything yet.
    steps_did_nothing: bool = False

    @property
    def is_submitted(self) -> bool:
        """Servers run it from its queue; nobody waits for it."""
        return bool(self.queue)

    @property
    def is_parked(self) -> bool:
        """It waits for its steps, or for its turn in its session, and nobody runs it."""
        return self.state is ActionState.WAITING and self.cause in (CHILD, SESSION)

    @property
    def is_open_composed(self) -> bool:
        """It does nothing itself, and what it has called may do something whether it runs or not."""
        return self.effect_class == "COMPOSED" and self.state not in TERMINAL

    @property
    def effect_key(self) -> str:
        """What the provider deduplicates on: the same over all attempts, and nobody's key of ours."""
        return f"placet-{self.action_id}"

    def changed(self, **changes: Any) -> Action:
        """A copy with these members changed."""
        if not changes.keys() <= _MEMBERS:
            raise TypeError(f"no members of an action: {sorted(changes.keys() - _MEMBERS)}")
        return self.with_members(changes)

    def with_members(self, members: dict[str, Any]) -> Action:
        """The same on the hot path: nobody checks that there are such members."""
        return Action.of_members(self.__dict__ | members)

    @staticmethod
    def of_members(members: dict[str, Any]) -> Action:
        """Whose other members are as the class has them, but `labels`, which it has not: quicker than to give each of
        forty again.
        """
        action = object.__new__(Action)
        action.__dict__ = members
        return action


_MEMBERS = frozenset(f.name for f in fields(Action))
