"""What is promised about a capability. Everything but the effect class has a default."""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from placet_server.model.approval import Terms

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
MIB = 2**20

EFFECT_KEY_TTL_DEFAULT_SECONDS = DAY_SECONDS
BACKOFF_JITTER = 0.2
PAYLOAD_BYTES_HARD_MAX = 3 * MIB


class EffectClass(StrEnum):
    """Whether repeating is safe, from harmless to not.

    READ changes nothing, COMPOSED nothing but by the actions that it calls, IDEMPOTENT is deduplicated by the provider
    on our effect key, RECONCILABLE can be looked up there, UNSAFE is none of these."""

    READ = "READ"
    COMPOSED = "COMPOSED"
    IDEMPOTENT = "IDEMPOTENT"
    RECONCILABLE = "RECONCILABLE"
    UNSAFE = "UNSAFE"


class Hazard(StrEnum):
    """What may be harmed."""

    WRITE = "WRITE"
    DELETE = "DELETE"
    MESSAGE = "MESSAGE"
    FINANCIAL = "FINANCIAL"
    IDENTITY = "IDENTITY"
    MEDICAL = "MEDICAL"
    LEGAL = "LEGAL"
    EXTERNAL_NETWORK = "EXTERNAL_NETWORK"
    CODE_EXECUTION = "CODE_EXECUTION"


class Risk(StrEnum):
    """How much is at stake, in rising order."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class KeyRequirement(StrEnum):
    """Whether an idempotency key may, must or must not be given."""

    OPTIONAL = "OPTIONAL"
    REQUIRED = "REQUIRED"
    UNSUPPORTED = "UNSUPPORTED"


class KeyScope(StrEnum):
    """Who shares a key, always within tenant and capability."""

    PRINCIPAL = "PRINCIPAL"
    TENANT = "TENANT"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRule:
    """`ttl_seconds` counts from settling; open and ambiguous actions never lose their key."""

    requirement: KeyRequirement
    scope: KeyScope = KeyScope.PRINCIPAL
    ttl_seconds: float = 7 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Timeouts bound one attempt, bytes the canonical UTF-8 text."""

    timeout_default_seconds: float = 60.0
    timeout_max_seconds: float = 900.0
    input_bytes_max: int = MIB
    output_bytes_max: int = MIB
    queue_delay_seconds_max: float | None = None
    """A submitted action that has not begun so long after it became ready is given up."""
    concurrency_max: int | None = None
    """Attempts that run at once for a tenant, over all servers."""
    rate_max: float | None = None
    """Attempts that begin in a second for a tenant, over all servers; a burst is what one second allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses between the attempts of a submitted action. `elapsed_seconds_max`: from when the first attempt began, no
    further one starts later.
    """

    initial_delay_seconds: float = 1.0
    delay_seconds_max: float = 30.0
    multiplier: float = 2.0
    elapsed_seconds_max: float | None = None

    def delay_seconds(self, attempt: int, action_id: str) -> float:
        """After this attempt. Each action has a jitter of its own, so that what failed together does not come back
        together.
        """
        # Above 10 ** 15 there is no span that delay_seconds_max does not cut.
        grown = min(1e15, self.multiplier ** (min(attempt, 100) - 1))
        span = min(self.delay_seconds_max, self.initial_delay_seconds * grown)
        return span * (1.0 + BACKOFF_JITTER * (2 * _share(action_id) - 1))


def _share(action_id: str) -> float:
    """From 0 to below 1, spread evenly."""
    return int.from_bytes(hashlib.sha256(action_id.encode()).digest()[:4], "big") / 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """How a lookup is asked. `automatic`: by the server itself. `elapsed_seconds_max`: from when the action became
    ambiguous; after it only an operator has it asked.
    """

    automatic: bool = True
    elapsed_seconds_max: float = HOUR_SECONDS
    initial_delay_seconds: float = 1.0
    delay_seconds_max: float = 300.0

    def delay_seconds(self, asked: int) -> float:
        """After so many questions."""
        # Above 2 ** 50 there is no span that delay_seconds_max does not cut.
        return min(self.delay_seconds_max, self.initial_delay_seconds * 2.0 ** min(max(asked, 1) - 1, 50))


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRule:
    """Which opaque credential handle the caller must carry; no issuers: any."""

    required: bool = False
    issuers: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRule:
    """JSON Pointers into input and output, `*` for any element: never logged or traced."""

    sensitive_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """`contract_for` makes one from an effect class. What a contract may not say is decided by
    `check_manifest`.

    Members that are younger than the first release are None unless said: what is None is not in the document, so that
    digests of contracts that were admitted before stay as they are.

    `attempts_max` counts tries and rescues of one action; `retry` None is `Backoff()`, `reconcile` None `Reconcile()`.
    `effect_marked`: the handler
    calls effect() before it touches the provider; until then a stopped attempt counts as not done."""

    effect: EffectClass
    effect_key_ttl_seconds: float | None = None
    effect_marked: bool = False
    hazards: frozenset[Hazard] = frozenset()
    risk: Risk = Risk.LOW
    idempotency: IdempotencyRule
    attempts_max: int = 1
    retry: Backoff | None = None
    reconcile: Reconcile | None = None
    limits: Limits = field(default_factory=Limits)
    approval: Terms | None = None
    no_approval_reason: str | None = None
    credentials: CredentialRule = field(default_factory=CredentialRule)
    data: DataRule = field(default_factory=DataRule)
    cancellable: bool = False
    streaming: bool = False


def key_requirement_default(effect: EffectClass) -> KeyRequirement:
    return KeyRequirement.OPTIONAL if effect is EffectClass.READ else KeyRequirement.REQUIRED


def attempts_max_default(effect: EffectClass, *, marked: bool = False) -> int:
    """A marked effect may have several tries whatever its class: what has begun is never repeated. What only calls
    others finds what they have done, and is run long and often.
    """
    if effect is EffectClass.COMPOSED:
        return 20
    return 3 if marked or effect in (EffectClass.READ, EffectClass.IDEMPOTENT) else 1


def contract_for(effect: EffectClass) -> Contract:
    """The contract that an effect class alone implies."""
    return Contract(
        effect=effect,
        effect_key_ttl_seconds=EFFECT_KEY_TTL_DEFAULT_SECONDS if effect is EffectClass.IDEMPOTENT else None,
        idempotency=IdempotencyRule(requirement=key_requirement_default(effect)),
        attempts_max=attempts_max_default(effect),
    )
