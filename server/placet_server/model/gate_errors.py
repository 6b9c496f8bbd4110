"""What the gates refuse, from capability to key: one class per ErrorReason, as in `errors.py`. Policies and quotas have
theirs beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, FieldViolation, PlacetError


@dataclass(kw_only=True, eq=False)
class CapabilityNotFound(PlacetError):
    reason: ClassVar[str] = "CAPABILITY_NOT_FOUND"
    code = Code.NOT_FOUND
    is_refusal: ClassVar[bool] = True
    capability: str
    version: str = ""

    def text(self) -> str:
        return (
            "Your tenant has no capability "
            f"{self.capability!r}{f' in version {self.version}' if self.version else ''}."
        )


@dataclass(kw_only=True, eq=False)
class HandlerNotFound(PlacetError):
    reason: ClassVar[str] = "HANDLER_NOT_FOUND"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    capability: str
    version: str

    def text(self) -> str:
        return (
            f"No handler of this server serves {self.capability!r} version {self.version}; "
            "start it with the app that does."
        )


@dataclass(kw_only=True, eq=False)
class InputSchemaViolation(PlacetError):
    reason: ClassVar[str] = "INPUT_SCHEMA_VIOLATION"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    capability: str
    version: str
    violations: tuple[FieldViolation, ...] = ()

    def text(self) -> str:
        named = "; ".join(f"{v.field or '/'}: {v.description}" for v in self.violations[:4])
        return f"The input does not fit {self.capability!r}: {named}."

    def metadata(self) -> dict[str, str]:
        return {
            "capability": self.capability,
            "version": self.version,
            "violations": str(len(self.violations)),
        }


@dataclass(kw_only=True, eq=False)
class ContractViolation(PlacetError):
    reason: ClassVar[str] = "CONTRACT_VIOLATION"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    capability: str
    rule: str
    detail: str = ""

    def text(self) -> str:
        return f"The contract of {self.capability!r} does not allow this ({self.rule}): {self.detail}"


@dataclass(kw_only=True, eq=False)
class IdempotencyKeyRequired(PlacetError):
    reason: ClassVar[str] = "IDEMPOTENCY_KEY_REQUIRED"
    code = Code.INVALID_ARGUMENT
    is_refusal: ClassVar[bool] = True
    capability: str
    version: str

    def text(self) -> str:
        return (
            f"{self.capability!r} has an effect: send options.idempotency_key, so that a "
            "retry cannot repeat it."
        )


@dataclass(kw_only=True, eq=False)
class CredentialMismatch(PlacetError):
    reason: ClassVar[str] = "CREDENTIAL_MISMATCH"
    code = Code.PERMISSION_DENIED
    is_refusal: ClassVar[bool] = True
    capability: str
    problem: str

    def text(self) -> str:
        return f"{self.capability!r} needs a credential that your token does not carry ({self.problem})."


@dataclass(kw_only=True, eq=False)
class DurabilityUnavailable(PlacetError):
    reason: ClassVar[str] = "DURABILITY_UNAVAILABLE"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    required: str
    actual: str

    def text(self) -> str:
        return f"You require durability {self.required}; this server keeps {self.actual}."


@dataclass(kw_only=True, eq=False)
class IdempotencyConflict(PlacetError):
    reason: ClassVar[str] = "IDEMPOTENCY_CONFLICT"
    code = Code.ALREADY_EXISTS
    capability: str
    action_id: str

    def text(self) -> str:
        return "The key is bound to another input; use a new key for a new request."


@dataclass(kw_only=True, eq=False)
class DuplicateRefused(PlacetError):
    reason: ClassVar[str] = "DUPLICATE_REFUSED"
    code = Code.ALREADY_EXISTS
    action_id: str

    def text(self) -> str:
        return "The key is known and you asked to refuse duplicates; GetAction shows what became of it."
