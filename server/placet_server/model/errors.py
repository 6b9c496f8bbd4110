"""What all errors have, and what any call can meet: one class per ErrorReason, with fields, not prose. What the gates
refuse is in `gate_errors.py`, what an action ended with in `ending_errors.py`; other kinds stand beside them.

`rpc` maps a class to a status by `code` and `reason`; `metadata()` becomes ErrorInfo.metadata. Nothing here
knows gRPC."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, ClassVar

from placet_server.model.outcome import Outcome


class Code(StrEnum):
    """Canonical status codes, by their gRPC names."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    UNAUTHENTICATED = "UNAUTHENTICATED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One broken rule: `field` is a proto field path or a JSON Pointer, `rule` its stable id."""

    field: str
    rule: str
    description: str


_ATTACHED = frozenset({"outcome", "violations", "retry_delay_seconds", "code"})


class PlacetError(Exception):
    """Base of all. `outcome` is set when an action exists; `violations` become BadRequest, at most 16."""

    reason: ClassVar[str] = "INTERNAL"
    code: Code = Code.INTERNAL
    # A gate says no before there is an action.
    is_refusal: ClassVar[bool] = False
    outcome: Outcome | None = None
    violations: tuple[FieldViolation, ...] = ()
    retry_delay_seconds: float | None = None

    def text(self) -> str:
        """One sentence for people: what is wrong, then what to do."""
        return "The server met a fault of its own."

    def metadata(self) -> dict[str, str]:
        """The message's variables, as text."""
        described: Any = self
        members = fields(described) if is_dataclass(described) else ()
        names = [member.name for member in members if member.name not in _ATTACHED]
        return {name: str(getattr(self, name)) for name in names if getattr(self, name) not in (None, "")}

    def __str__(self) -> str:
        return f"{self.reason}: {self.text()}"


@dataclass(kw_only=True, eq=False)
class MalformedRequest(PlacetError):
    reason: ClassVar[str] = "MALFORMED_REQUEST"
    code = Code.INVALID_ARGUMENT
    detail: str = ""
    violations: tuple[FieldViolation, ...] = ()

    def text(self) -> str:
        named = "; ".join(f"{v.field}: {v.description}" for v in self.violations[:4])
        return f"The request breaks its bounds: {self.detail or named}."

    def metadata(self) -> dict[str, str]:
        return {"violations": str(len(self.violations))} | ({"detail": self.detail} if self.detail else {})


@dataclass(kw_only=True, eq=False)
class MalformedJson(PlacetError):
    reason: ClassVar[str] = "MALFORMED_JSON"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    field: str = "input_json"
    detail: str
    offset: int = 0

    def text(self) -> str:
        return f"{self.field} is not JSON: {self.detail} at offset {self.offset}."


@dataclass(kw_only=True, eq=False)
class JsonNotInteroperable(PlacetError):
    reason: ClassVar[str] = "JSON_NOT_INTEROPERABLE"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    field: str = "input_json"
    problem: str
    path: str = ""

    def text(self) -> str:
        place = self.path or "the root"
        return f"{self.field} is JSON that not every reader understands alike: {self.problem}, at {place}."


@dataclass(kw_only=True, eq=False)
class PayloadTooLarge(PlacetError):
    reason: ClassVar[str] = "PAYLOAD_TOO_LARGE"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    field: str = "input_json"
    bytes: int
    bytes_max: int

    def text(self) -> str:
        return (
            f"{self.field} has {self.bytes} bytes; the limit is {self.bytes_max}. Pass a "
            "reference to large data instead."
        )


@dataclass(kw_only=True, eq=False)
class Unauthenticated(PlacetError):
    reason: ClassVar[str] = "UNAUTHENTICATED"
    code = Code.UNAUTHENTICATED
    problem: str

    def text(self) -> str:
        return f"The server does not know you ({self.problem}); send `authorization: Bearer <token>`."


@dataclass(kw_only=True, eq=False)
class NotFound(PlacetError):
    reason: ClassVar[str] = "NOT_FOUND"
    code = Code.NOT_FOUND
    kind: str
    name: str

    def text(self) -> str:
        return f"Your tenant has no {self.kind} {self.name!r}."


@dataclass(kw_only=True, eq=False)
class CursorExpired(PlacetError):
    reason: ClassVar[str] = "CURSOR_EXPIRED"
    code = Code.OUT_OF_RANGE
    oldest_cursor: str

    def text(self) -> str:
        return "Nothing follows this cursor here: it comes from another store, or is too old. Begin at oldest_cursor."


@dataclass(kw_only=True, eq=False)
class StaleDigest(PlacetError):
    reason: ClassVar[str] = "STALE_DIGEST"
    code = Code.FAILED_PRECONDITION
    expected: str
    actual: str

    def text(self) -> str:
        return "This is not what you looked at, or it has changed since; look at it again, then decide."


@dataclass(kw_only=True, eq=False)
class ManifestRefused(PlacetError):
    reason: ClassVar[str] = "MANIFEST_REFUSED"
    code = Code.INVALID_ARGUMENT
    manifest: str
    violations: tuple[FieldViolation, ...] = ()

    def text(self) -> str:
        return (
            f"Manifest {self.manifest!r} has {len(self.violations)} problem(s); validate_only lists them all."
        )

    def metadata(self) -> dict[str, str]:
        return {"manifest": self.manifest, "problems": str(len(self.violations))}


@dataclass(kw_only=True, eq=False)
class ScopeMissing(PlacetError):
    reason: ClassVar[str] = "SCOPE_MISSING"
    code = Code.PERMISSION_DENIED
    scope: str

    def text(self) -> str:
        return f"This call needs scope {self.scope!r}, which your token does not have."


@dataclass(kw_only=True, eq=False)
class UnknownMethod(PlacetError):
    reason: ClassVar[str] = "UNKNOWN_METHOD"
    code = Code.UNIMPLEMENTED
    method: str

    def text(self) -> str:
        return f"This server has no method {self.method}."


@dataclass(kw_only=True, eq=False)
class StateConflict(PlacetError):
    reason: ClassVar[str] = "STATE_CONFLICT"
    code = Code.FAILED_PRECONDITION
    action_id: str
    state: str
    rule: str

    def text(self) -> str:
        return f"This may not be done to what is {self.state} ({self.rule})."


READER_STALLED = "reader_stalled"


@dataclass(kw_only=True, eq=False)
class Overloaded(PlacetError):
    reason: ClassVar[str] = "OVERLOADED"
    code = Code.RESOURCE_EXHAUSTED
    limit: str
    limit_max: int
    retry_delay_seconds: float | None = 1.0

    def text(self) -> str:
        if self.limit == READER_STALLED:
            return f"The stream was not read for {self.limit_max} s; go on after its last cursor."
        return (
            f"The server is at its limit of {self.limit_max} {self.limit}; nothing was stored, send it again."
        )


@dataclass(kw_only=True, eq=False)
class StoreUnavailable(PlacetError):
    """`detail` is for the log alone: it may name hosts."""

    reason: ClassVar[str] = "STORE_UNAVAILABLE"
    code = Code.UNAVAILABLE
    detail: str = ""
    retry_delay_seconds: float | None = 1.0

    def text(self) -> str:
        return "The store cannot be reached; sending the same request with its key again is safe."

    def metadata(self) -> dict[str, str]:
        return {}


@dataclass(kw_only=True, eq=False)
class WaitExpired(PlacetError):
    reason: ClassVar[str] = "WAIT_EXPIRED"
    code = Code.DEADLINE_EXCEEDED
    state: str

    def text(self) -> str:
        return "Your deadline came first; the action goes on."


@dataclass(kw_only=True, eq=False)
class Draining(PlacetError):
    reason: ClassVar[str] = "DRAINING"
    code = Code.UNAVAILABLE
    retry_delay_seconds: float | None = 1.0

    def text(self) -> str:
        return "The server is shutting down; send the same request again."


@dataclass(kw_only=True, eq=False)
class InternalFault(PlacetError):
    """A bug. The log has everything under `incident_id`; the caller gets no text of it."""

    reason: ClassVar[str] = "INTERNAL"
    code = Code.INTERNAL
    incident_id: str

    def text(self) -> str:
        return (
            f"The server met a fault of its own; its log has the details under incident {self.incident_id}."
        )
