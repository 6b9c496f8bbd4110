"""What the writer is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NotRequired, TypedDict

from placet_server.store.event import LaneItem


class NewAction(TypedDict):
    """What every row to insert has. Digests are hex; times are seconds."""

    tenant: str
    action_id: str
    capability: str
    version: str
    contract_digest: str
    effect_class: str
    subject: str
    caller: str
    idempotency_key: str | None
    key_digest: str | None
    key_ttl_seconds: float
    input: str
    input_digest: str
    labels: str
    on_caller_gone: str
    durability: str
    predecessor_id: str | None
    effect_marked: bool
    effect_key_ttl_seconds: float | None
    attempts_max: int
    verdict_digest: str | None


class Admission(NewAction):
    """One row to insert that runs from the start."""

    lease_id: str
    timeout_seconds: float


class SubmissionRow(NewAction):
    """One row to insert that waits for a server. `ready_time_us` goes before `delay_seconds`; NULL and 0: at once."""

    queue: str
    priority: int
    attempt_timeout_seconds: float | None
    queue_delay_seconds: float | None
    retry: str | None
    ready_time_us: int | None
    delay_seconds: float | None


class BegunRow(SubmissionRow):
    """One row to insert that runs from the start, and waits for a server if it goes back into line."""

    lease_id: str
    timeout_seconds: float


class ApprovalPart(TypedDict):
    """The approval of a row to insert that waits for people: its columns, and the body of the event."""

    approval_id: str
    kind: str
    digest: str
    terms: str
    title: str
    summary: str
    subjects: list[str]
    roles: list[str]
    groups: list[str]
    ttl_seconds: int
    escalate_seconds: int | None
    waiting_body: str


class DeliveryPart(TypedDict):
    """One delivery that tells of it: columns. `data` lacks when the approval expires, which the statement adds."""

    delivery_id: str
    target: str
    type: str
    subject: str
    event_id: str
    data: str
    attempts_max: int


class WaitingRow(SubmissionRow, ApprovalPart):
    """One row to insert that people have to say yes to, with its approval, and with whom that is told to."""

    deliveries: list[DeliveryPart]


class ChildRow(SubmissionRow):
    """One row to insert that waits for a server, as a step of a parent that runs under this lease. `lease_id`, which
    only some have: it is to run here at once, as far as its queue lets it. `entry_ordinal`: not before the parent
    has this entry.
    """

    parent_id: str
    parent_lease_id: str
    step: str
    number: int
    step_path: str
    entry_ordinal: NotRequired[int]
    lease_id: NotRequired[str]
    timeout_seconds: NotRequired[float]


class Advance(TypedDict, total=False):
    """One row to move, under its lease, with its event.

    What is absent stays or becomes null, as sql/action.sql says. `dead_letter` and what follows it are there if the
    action goes back into line, ends as a dead letter, or gets into doubt or out of it; `parent_id`, if it is a
    step whose parent is to be told; `awaited` and `woken_body`, if it is to be parked.
    """

    tenant: str
    action_id: str
    lease_id: str
    state: str
    effect: str | None
    effect_begun: bool | None
    effect_unknown: bool | None
    reason: str | None
    cause: str | None
    message: str | None
    failure_code: str | None
    failure_category: str | None
    retry_delay_seconds: float | None
    key_released: bool | None
    output: str | None
    provider_operation: str | None
    provider_cursor: str | None
    ready_delay_seconds: float | None
    sequence: int | None
    event_type: str
    event_body: str
    awaited: list[str]
    woken_body: str
    dead_letter: bool
    queue: str | None
    priority: int
    capability: str
    version: str
    claim_delay_seconds: float
    expire_time_us: int | None
    parent_id: str


class EntryItem(TypedDict):
    """One entry to append to what a run remembers, under its lease, with its event. `model` and `budget`: of the first
    one. What is counted is absolute. `seen`: steps whose ends the run knows by this. `said`: what of its lane is stored
    with it.
    """

    tenant: str
    action_id: str
    lease_id: str
    ordinal: int
    type: str
    turn: int
    body: str
    model: str
    budget: str
    turns: int
    requests: int
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_micros: int
    unpriced: int
    active_ms: int
    reserved_tokens: int
    reserved_micros: int
    seen: list[str]
    said: Sequence[LaneItem]
    event_type: str
    event_body: str


class Written(NamedTuple):
    """What the store made of an item. `ready_time_us` is a submission's. `wakes`: a composed parent may wait for it.
    `woken`: it was to be parked, and is ready. `begun`: a child that runs here.
    """

    sequence: int
    receipt: str
    time_us: int
    ready_time_us: int = 0
    wakes: bool = False
    woken: bool = False
    begun: bool = False
