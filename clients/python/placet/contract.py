"""From the words of a decorator to the contract on the wire. What is not said is left to the server's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypedDict, TypeVar

from google.protobuf import duration_pb2

from placet.failure import DeclarationError
from placet.v1 import capability_pb2 as pb

EffectWord = Literal["read", "composed", "idempotent", "reconcilable", "unsafe"]
HazardWord = Literal[
    "write",
    "delete",
    "message",
    "financial",
    "identity",
    "medical",
    "legal",
    "external_network",
    "code_execution",
]
RiskWord = Literal["low", "medium", "high", "critical"]
KeyWord = Literal["required", "optional", "unsupported"]
ScopeWord = Literal["principal", "tenant"]
Span = timedelta | float
"""Seconds, or a timedelta."""

EFFECT_KEY_TTL = timedelta(hours=24)
"""How long a provider is taken to remember our effect key when the author does not say."""

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)

_EFFECTS: dict[str, pb.EffectClass.ValueType] = {
    "read": pb.EFFECT_CLASS_READ,
    "composed": pb.EFFECT_CLASS_COMPOSED,
    "idempotent": pb.EFFECT_CLASS_IDEMPOTENT,
    "reconcilable": pb.EFFECT_CLASS_RECONCILABLE,
    "unsafe": pb.EFFECT_CLASS_UNSAFE,
}
_EFFECTS_MEAN = {
    "read": "changes nothing",
    "composed": "does nothing but by the tools that it calls",
    "idempotent": "the provider deduplicates on our effect key",
    "reconcilable": "the effect can be looked up at the provider",
    "unsafe": "none of these",
}
_HAZARDS: dict[str, pb.Hazard.ValueType] = {
    "write": pb.HAZARD_WRITE,
    "delete": pb.HAZARD_DELETE,
    "message": pb.HAZARD_MESSAGE,
    "financial": pb.HAZARD_FINANCIAL,
    "identity": pb.HAZARD_IDENTITY,
    "medical": pb.HAZARD_MEDICAL,
    "legal": pb.HAZARD_LEGAL,
    "external_network": pb.HAZARD_EXTERNAL_NETWORK,
    "code_execution": pb.HAZARD_CODE_EXECUTION,
}
_RISKS: dict[str, pb.Risk.ValueType] = {
    "low": pb.RISK_LOW,
    "medium": pb.RISK_MEDIUM,
    "high": pb.RISK_HIGH,
    "critical": pb.RISK_CRITICAL,
}
_KEYS: dict[str, pb.KeyRequirement.ValueType] = {
    "required": pb.KEY_REQUIREMENT_REQUIRED,
    "optional": pb.KEY_REQUIREMENT_OPTIONAL,
    "unsupported": pb.KEY_REQUIREMENT_UNSUPPORTED,
}
_SCOPES: dict[str, pb.KeyScope.ValueType] = {
    "principal": pb.KEY_SCOPE_PRINCIPAL,
    "tenant": pb.KEY_SCOPE_TENANT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What credential the caller must carry; empty `issuers` accept any."""

    required: bool = True
    issuers: Sequence[str] = ()
    scopes: Sequence[str] = ()


class Options(TypedDict, total=False):
    """What a decorator may say about a contract beside its effect."""

    effect_key_ttl: Span | None
    effect_marked: bool
    hazards: Iterable[HazardWord]
    risk: RiskWord
    key: KeyWord | None
    key_scope: ScopeWord | None
    key_ttl: Span | None
    attempts_max: int | None
    retry_delay: Span | None
    retry_delay_max: Span | None
    retry_multiplier: float | None
    retry_elapsed_max: Span | None
    reconcile_automatic: bool | None
    reconcile_delay: Span | None
    reconcile_delay_max: Span | None
    reconcile_elapsed_max: Span | None
    queue_delay_max: Span | None
    concurrency_max: int | None
    rate_max: float | None
    timeout: Span | None
    timeout_max: Span | None
    input_bytes_max: int | None
    output_bytes_max: int | None
    approval: str | None
    no_approval: str | None
    credentials: Credentials | None
    sensitive: Sequence[str]
    cancellable: bool
    streaming: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The decorator's words, as the author wrote them."""

    effect: str
    effect_key_ttl: Span | None = None
    effect_marked: bool = False
    hazards: Iterable[str] = ()
    risk: str = "low"
    key: str | None = None
    key_scope: str | None = None
    key_ttl: Span | None = None
    attempts_max: int | None = None
    retry_delay: Span | None = None
    retry_delay_max: Span | None = None
    retry_multiplier: float | None = None
    retry_elapsed_max: Span | None = None
    reconcile_automatic: bool | None = None
    reconcile_delay: Span | None = None
    reconcile_delay_max: Span | None = None
    reconcile_elapsed_max: Span | None = None
    queue_delay_max: Span | None = None
    concurrency_max: int | None = None
    rate_max: float | None = None
    timeout: Span | None = None
    timeout_max: Span | None = None
    input_bytes_max: int | None = None
    output_bytes_max: int | None = None
    approval: str | None = None
    no_approval: str | None = None
    credentials: Credentials | None = None
    sensitive: Sequence[str] = ()
    cancellable: bool = False
    streaming: bool = False

    @classmethod
    def of(cls, effect: str, options: Options, *, is_async: bool) -> Terms:
        """Async handlers are cancellable unless the author says otherwise."""
        return cls(effect=effect, **{"cancellable": is_async, **options})  # type: ignore[arg-type]


def contract_of(terms: Terms, what: str) -> pb.Contract:
    """Raises DeclarationError, naming `what`, for a word that does not exist or a span that makes no sense."""
    contract = pb.Contract(
        effect=_effect(terms.effect, what),
        effect_key_ttl=_effect_key_ttl(terms, what),
        hazards=[
            _word(_HAZARDS, hazard, "hazards", what) for hazard in words_of(terms.hazards, "hazards", what)
        ],
        risk=_word(_RISKS, terms.risk, "risk", what),
        cancellable=terms.cancellable,
        streaming=terms.streaming,
        effect_marked=terms.effect_marked,
        data=pb.DataRule(sensitive_paths=words_of(terms.sensitive, "sensitive", what)),
        retry=_retry(terms, what),
        limits=_limits(terms, what),
        idempotency=_idempotency(terms, what),
    )
    if (reconcile := _reconcile(terms, what)) is not None:
        contract.reconcile.CopyFrom(reconcile)
    if terms.approval is not None:
        contract.approval.text = terms.approval
    if terms.no_approval is not None:
        contract.no_approval.reason = terms.no_approval
    if (rule := terms.credentials) is not None:
        contract.credentials.CopyFrom(
            pb.CredentialRule(required=rule.required, issuers=rule.issuers, scopes=rule.scopes)
        )
    return contract


def _effect(word: str, what: str) -> pb.EffectClass.ValueType:
    found = _EFFECTS.get(word)
    if found is None:
        known = ", ".join(f"{name!r} ({meaning})" for name, meaning in _EFFECTS_MEAN.items())
        raise DeclarationError(f"{what}: effect is {word!r}; say one of {known}")
    return found


def _effect_key_ttl(terms: Terms, what: str) -> duration_pb2.Duration | None:
    if terms.effect == "idempotent":
        return duration_of(
            EFFECT_KEY_TTL if terms.effect_key_ttl is None else terms.effect_key_ttl, "effect_key_ttl", what
        )
    if terms.effect_key_ttl is not None:
        raise DeclarationError(f"{what}: effect_key_ttl belongs to effect='idempotent'; remove it")
    return None


def _idempotency(terms: Terms, what: str) -> pb.IdempotencyRule:
    rule = pb.IdempotencyRule(ttl=duration_of(terms.key_ttl, "key_ttl", what))
    if terms.key is not None:
        rule.requirement = _word(_KEYS, terms.key, "key", what)
    if terms.key_scope is not None:
        rule.scope = _word(_SCOPES, terms.key_scope, "key_scope", what)
    return rule


def _retry(terms: Terms, what: str) -> pb.RetryRule:
    multiplier = terms.retry_multiplier
    if multiplier is not None and not 1 <= multiplier <= 10:
        raise DeclarationError(f"{what}: retry_multiplier is {multiplier!r}; say a number from 1 to 10")
    return pb.RetryRule(
        attempts_max=terms.attempts_max or 0,
        initial_delay=duration_of(terms.retry_delay, "retry_delay", what),
        delay_max=duration_of(terms.retry_delay_max, "retry_delay_max", what),
        multiplier=multiplier or 0.0,
        elapsed_max=duration_of(terms.retry_elapsed_max, "retry_elapsed_max", what),
    )


def _reconcile(terms: Terms, what: str) -> pb.ReconcileRule | None:
    """None if nothing is said."""
    rule = pb.ReconcileRule(
        automatic=terms.reconcile_automatic,
        initial_delay=duration_of(terms.reconcile_delay, "reconcile_delay", what),
        delay_max=duration_of(terms.reconcile_delay_max, "reconcile_delay_max", what),
        elapsed_max=duration_of(terms.reconcile_elapsed_max, "reconcile_elapsed_max", what),
    )
    return rule if rule.ListFields() else None


def _limits(terms: Terms, what: str) -> pb.Limits:
    return pb.Limits(
        timeout_default=duration_of(terms.timeout, "timeout", what),
        timeout_max=duration_of(terms.timeout_max, "timeout_max", what),
        queue_delay_max=duration_of(terms.queue_delay_max, "queue_delay_max", what),
        concurrency_max=_positive(terms.concurrency_max, "concurrency_max", 1000, what),
        rate_max=_positive(terms.rate_max, "rate_max", 100_000.0, what),
        input_bytes_max=terms.input_bytes_max or 0,
        output_bytes_max=terms.output_bytes_max or 0,
    )


def _positive(value: Number | None, option: str, largest: Number, what: str) -> Number:
    """0 if it is not said."""
    if value is None:
        return largest * 0
    if not 0 < value <= largest:
        raise DeclarationError(f"{what}: {option} is {value!r}; say a number above 0, at most {largest}")
    return value


def _word(words: dict[str, Value], word: str, option: str, what: str) -> Value:
    if word not in words:
        raise DeclarationError(f"{what}: {option} has {word!r}; say one of {', '.join(map(repr, words))}")
    return words[word]


def words_of(values: Iterable[str], option: str, what: str) -> list[str]:
    """Raises DeclarationError for a single word instead of a list."""
    if isinstance(values, str):
        raise DeclarationError(f"{what}: {option} is a list of words; write {option}=[{values!r}]")
    return list(values)


def duration_of(span: Span | None, option: str, what: str) -> duration_pb2.Duration | None:
    """None if it is not said. Raises DeclarationError, naming `option` of `what`."""
    if span is None:
        return None
    whole = span if isinstance(span, timedelta) else timedelta(seconds=span)
    if whole <= timedelta(0):
        raise DeclarationError(
            f"{what}: {option} is {span!r}; say a positive span in seconds, or a timedelta"
        )
    duration = duration_pb2.Duration()
    duration.FromTimedelta(whole)
    return duration
