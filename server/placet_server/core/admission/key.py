"""The key gate: which key a request holds, and what it means that the key is known already."""

from __future__ import annotations

import hashlib
from enum import Enum, auto
from typing import NamedTuple

from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action, Invocation, OnDuplicate
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.contract import KeyScope
from placet_server.model.gate_errors import DuplicateRefused, IdempotencyConflict
from placet_server.model.lifecycle import TERMINAL


class Key(NamedTuple):
    """`digest` is unique over tenant, capability, scope and text."""

    text: str
    digest: bytes


class Known(Enum):
    """What to do about an action that holds the key with the same input."""

    ATTEND = auto()
    TAKE_OVER = auto()


def bind_key(capability: Capability, caller: Caller, text: str) -> Key | None:
    """None without a key."""
    if not text:
        return None
    subject = caller.subject if capability.contract.idempotency.scope is KeyScope.PRINCIPAL else ""
    return Key(text, key_digest(caller.tenant, capability.name, subject, text))


def key_digest(tenant: str, capability: str, subject: str, text: str) -> bytes:
    """Parts are joined with their lengths, so that no part can pretend to be two.

    `subject` is empty for keys of the whole tenant.
    """
    parts = f"{len(tenant)}:{tenant},{len(capability)}:{capability},{len(subject)}:{subject},{text}"
    return hashlib.sha256(parts.encode()).digest()


def meet_known(action: Action, invocation: Invocation, input_digest: str, now_us: int) -> Known:
    """Raises IdempotencyConflict for other input, DuplicateRefused if the caller wants no known key."""
    expired = action.key_expire_time_us is not None and action.key_expire_time_us <= now_us
    if action.state in TERMINAL and expired:
        return Known.TAKE_OVER
    other_version = bool(invocation.version) and invocation.version != action.version
    if action.input_digest != input_digest or other_version:
        raise IdempotencyConflict(capability=action.capability, action_id=action.action_id)
    if invocation.on_duplicate is OnDuplicate.REFUSE:
        refused = DuplicateRefused(action_id=action.action_id)
        refused.outcome = outcome_of(action)
        raise refused
    return Known.TAKE_OVER if action.key_released else Known.ATTEND
