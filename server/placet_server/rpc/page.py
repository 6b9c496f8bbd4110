"""Pages: how much one holds, and the tokens that continue. A token is opaque, bound to its request and tenant; it
grants nothing, and whoever makes one by hand gets no further than the checks here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import Message

from placet.v1 import (
    approval_service_pb2,
    catalog_service_pb2,
    operations_service_pb2,
    policy_service_pb2,
    recovery_service_pb2,
    runtime_service_pb2,
    session_service_pb2,
)
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.query import PAGE_SIZE_DEFAULT

ListRequest = (
    runtime_service_pb2.ListActionsRequest
    | runtime_service_pb2.CancelActionsRequest
    | catalog_service_pb2.ListManifestsRequest
    | catalog_service_pb2.ListCapabilitiesRequest
    | recovery_service_pb2.ListDeadLettersRequest
    | recovery_service_pb2.ListAmbiguousRequest
    | operations_service_pb2.ListServersRequest
    | recovery_service_pb2.ListReportsRequest
    | policy_service_pb2.ListPolicySetsRequest
    | policy_service_pb2.DryRunPolicySetRequest
    | approval_service_pb2.ListApprovalsRequest
    | operations_service_pb2.ListDeliveriesRequest
    | runtime_service_pb2.ListTurnsRequest
    | session_service_pb2.ListSessionsRequest
    | session_service_pb2.ListMessagesRequest
)
# Their pages continue after an id.
_OF_IDS = (
    runtime_service_pb2.ListActionsRequest,
    runtime_service_pb2.CancelActionsRequest,
    recovery_service_pb2.ListDeadLettersRequest,
    recovery_service_pb2.ListAmbiguousRequest,
    operations_service_pb2.ListServersRequest,
    recovery_service_pb2.ListReportsRequest,
    policy_service_pb2.DryRunPolicySetRequest,
    operations_service_pb2.ListDeliveriesRequest,
    session_service_pb2.ListSessionsRequest,
)
# Theirs after a number.
_OF_NUMBERS = (policy_service_pb2.ListPolicySetsRequest, runtime_service_pb2.ListTurnsRequest)

# Default clients take no more than 4 MiB.
PAGE_BYTES_MAX = 3 * 2**20
_HASH_BYTES = 12
# What the store can hold of an entry's ordinal.
_ORDINAL_MAX = 2**31 - 1
# The end of the year 9999.
_LATEST_US = 253_402_300_799_999_999

M = TypeVar("M", bound=Message)


def fitting(messages: Iterable[M]) -> list[M]:
    """As many of the first as a page holds, and at least one if there is one."""
    page: list[M] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if page and size > PAGE_BYTES_MAX:
            break
        page.append(message)
    return page


def page_token(request: ListRequest, tenant: str, position: str) -> str:
    """Continues after `position`; empty on the last page."""
    if not position:
        return ""
    return base64.urlsafe_b64encode(_hash(request, tenant, position) + position.encode()).decode().rstrip("=")


def token_after(
    request: ListRequest, tenant: str, page: Sequence[M], found_count: int, place_of: Callable[[M], str]
) -> str:
    """Continues after the last message of `page`; empty if less was found than was asked for, and all of it fits."""
    size = request.page_size or PAGE_SIZE_DEFAULT
    is_last = found_count < size and len(page) == found_count
    return page_token(request, tenant, "" if is_last else place_of(page[-1]))


def page_position(request: ListRequest, tenant: str) -> str:
    """Where to continue; empty: at the beginning. Raises MalformedRequest for another request's token."""
    token = request.page_token
    if not token:
        return ""
    try:
        content = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        position = content[_HASH_BYTES:].decode()
        if content[:_HASH_BYTES] == _hash(request, tenant, position) and _is_place(request, position):
            return position
    except (binascii.Error, ValueError):
        pass
    violation = FieldViolation(
        field="page_token",
        rule="page_token",
        description="not from an answer to this request; start without one",
    )
    raise MalformedRequest(violations=(violation,))


def expiry_token(
    request: approval_service_pb2.ListApprovalsRequest, tenant: str, after: tuple[int, str] | None
) -> str:
    """Continues after an expiry and an id; empty for None."""
    return "" if after is None else page_token(request, tenant, f"{after[0]}:{after[1]}")


def expiry_position(
    request: approval_service_pb2.ListApprovalsRequest, tenant: str
) -> tuple[int, str] | None:
    """Raises MalformedRequest for another request's token."""
    position = page_position(request, tenant)
    if not position:
        return None
    expire_time_us, _, approval_id = position.partition(":")
    return int(expire_time_us), approval_id


def place_in_session(request: session_service_pb2.ListMessagesRequest, tenant: str) -> tuple[int, int]:
    """Continues after an entry of a run. Raises MalformedRequest."""
    number, _, ordinal = page_position(request, tenant).partition(":")
    return int(number or 0), int(ordinal or 0)


def _is_place(request: ListRequest, position: str) -> bool:
    """Whether the store can be asked for what follows. Raises ValueError for no id or number where one
    belongs.
    """
    if isinstance(request, _OF_IDS):
        UUID(position)
    if isinstance(request, _OF_NUMBERS):
        int(position)
    if isinstance(request, runtime_service_pb2.ListTurnsRequest):
        return 0 <= int(position) <= _ORDINAL_MAX
    if isinstance(request, approval_service_pb2.ListApprovalsRequest):
        expire_time_us, _, approval_id = position.partition(":")
        UUID(approval_id)
        return 0 <= int(expire_time_us) <= _LATEST_US
    if isinstance(request, session_service_pb2.ListMessagesRequest):
        number, _, ordinal = position.partition(":")
        return 0 <= int(number) <= _ORDINAL_MAX and 0 <= int(ordinal) <= _ORDINAL_MAX
    return "\x00" not in position


def _hash(request: ListRequest, tenant: str, position: str) -> bytes:
    """Over everything but the token itself and the size, which may change from page to page."""
    bound = type(request)()
    bound.CopyFrom(request)  # type: ignore[arg-type]
    bound.page_token = ""
    bound.page_size = 0
    name = bound.DESCRIPTOR.full_name.encode()
    parts = (name, tenant.encode(), position.encode(), bound.SerializeToString(deterministic=True))
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()[:_HASH_BYTES]
