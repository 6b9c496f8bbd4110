"""Telling others: what is told, to whom, and what an attempt at it has come to. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import UUID, uuid5

import orjson

APPROVAL_REQUESTED = "dev.placet.approval.requested"
APPROVAL_ESCALATED = "dev.placet.approval.escalated"
APPROVAL_DECIDED = "dev.placet.approval.decided"
APPROVAL_ENDED = "dev.placet.approval.ended"
CALLBACK_TYPES = (APPROVAL_REQUESTED, APPROVAL_ESCALATED, APPROVAL_DECIDED, APPROVAL_ENDED)

DATA_BYTES_MAX = 64 * 1024
ERROR_LENGTH_MAX = 512
DELAY_SECONDS_FIRST = 5.0
DELAY_FACTOR = 4.0
DELAY_SECONDS_MAX = 4 * 3600.0
DELAY_JITTER = 0.2
STATUS_GONE = 410
# What the same request may overcome: somebody deploys, rotates a secret, sheds load. Any other 4xx it may not.
RETRIED_4XX = frozenset({401, 403, 404, 408, 409, 421, 423, 425, 429})

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_NAMESPACE = UUID("0f6f7a4e-5d0c-5c1b-9a54-6b2f4b6f0c11")


class DeliveryState(StrEnum):
    """DELIVERED says that the receiver has taken it, not that anything was done with it."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What has come to pass. `subject` is what it is about, such as approvals/ID; `key` tells it from all others of its
    type and subject, such as a state or a decision's id: told twice, it is the same."""

    tenant: str
    type: str
    subject: str
    key: str
    data: Mapping[str, object]
    action_id: str | None = None

    @property
    def event_id(self) -> str:
        told = json.dumps([self.tenant, self.type, self.subject, self.key])
        return str(uuid5(_NAMESPACE, told))

    def delivery_id(self, target: str) -> str:
        return str(uuid5(UUID(self.event_id), target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Who is told. `types` are names, or end in `*`. The first of `secrets` is the newest."""

    tenant: str
    name: str
    url: str
    types: tuple[str, ...]
    secrets: tuple[str, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def wants(self, tenant: str, type_: str) -> bool:
        return self.tenant == tenant and any(covers(pattern, type_) for pattern in self.types)


def covers(pattern: str, type_: str) -> bool:
    if pattern.endswith("*"):
        return type_.startswith(pattern[:-1])
    return pattern == type_


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One callback to one target. `generation`: how often it was sent out, by an operator's will, from 1. `attempts` of
    all generations, as `attempts_max`. `next_time_us`: when it is tried next, or, under a lease, given to others.
    `last_status` 0: there was no answer."""

    tenant: str
    delivery_id: str
    target: str
    type: str
    subject: str
    event_id: str
    action_id: str | None
    data: str
    state: DeliveryState
    generation: int
    attempts: int
    attempts_max: int
    create_time_us: int
    next_time_us: int
    end_time_us: int | None
    last_status: int
    last_error: str
    lease_id: str | None = None


class DeliveryFilter(NamedTuple):
    """Members are joined by and, the states by or. Empty members match all."""

    states: tuple[DeliveryState, ...] = ()
    target: str = ""
    action_id: str = ""


class Tried(NamedTuple):
    """What one attempt came to. `status` 0: no answer, `error` says why. `retry_after` as it was sent, or empty."""

    status: int
    error: str = ""
    retry_after: str = ""


class Judged(NamedTuple):
    """`delay_seconds` of what stays PENDING."""

    state: DeliveryState
    error: str
    delay_seconds: float = 0.0


def judge(delivery: Delivery, tried: Tried, now: datetime) -> Judged:
    """What the attempt makes of the delivery, whose `attempts` count it. A redirect is no answer: nobody follows it."""
    status = tried.status
    if 200 <= status < 300:
        return Judged(DeliveryState.DELIVERED, "")
    error = (tried.error if status == 0 else f"answered {status}")[:ERROR_LENGTH_MAX]
    if 400 <= status < 500 and status not in RETRIED_4XX:
        said = "it is gone for good" if status == STATUS_GONE else "the same again would be refused again"
        return Judged(DeliveryState.DEAD, f"{error}: {said}")
    if delivery.attempts >= delivery.attempts_max:
        return Judged(DeliveryState.DEAD, error)
    delay = delay_seconds(delivery.delivery_id, delivery.attempts)
    asked = min(retry_after_seconds(tried.retry_after, now), DELAY_SECONDS_MAX)
    return Judged(DeliveryState.PENDING, error, max(delay, asked))


def delay_seconds(delivery_id: str, attempt: int) -> float:
    """After this attempt. Each delivery has a jitter of its own, so that what failed together does not come back
    together."""
    grown = DELAY_SECONDS_FIRST * DELAY_FACTOR ** (min(max(attempt, 1), 20) - 1)
    digest = hashlib.sha256(f"{delivery_id}/{attempt}".encode()).digest()
    share = int.from_bytes(digest[:4], "big") / 2**32
    return min(DELAY_SECONDS_MAX, grown) * (1.0 + DELAY_JITTER * (2 * share - 1))


def retry_after_seconds(text: str, now: datetime) -> float:
    """RFC 9110, 10.2.3: seconds, or a date. 0 for what is neither, or past."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return 0.0
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())


def cloud_event(delivery: Delivery, source: str) -> bytes:
    """CloudEvents 1.0, structured mode in JSON: the same bytes at every attempt."""
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": delivery.event_id,
        "source": f"{source}/tenants/{delivery.tenant}",
        "type": delivery.type,
        "subject": delivery.subject,
        "time": time_text(delivery.create_time_us),
        "datacontenttype": "application/json",
        "data": orjson.Fragment(delivery.data),
    }
    return orjson.dumps(event)


def time_text(time_us: int) -> str:
    """RFC 3339, in UTC."""
    at = _EVER + timedelta(microseconds=time_us)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def data_text(data: Mapping[str, object]) -> str:
    """Raises ValueError for more than DATA_BYTES_MAX."""
    text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    if len(text) > DATA_BYTES_MAX:
        raise ValueError("a callback says more than it may")
    return text.decode()


Ending = Literal["delivered", "retried", "dead"]
ENDINGS: dict[DeliveryState, Ending] = {
    DeliveryState.DELIVERED: "delivered",
    DeliveryState.PENDING: "retried",
    DeliveryState.DEAD: "dead",
}
