"""Everything that is wrong with a manifest, found at once. Nothing is stored here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import compile as pattern

from placet_server.core.admission.builtin import RESERVED_PREFIX, is_reserved
from placet_server.core.admission.manifest_agent import (
    AGENT_CLAIMS,
    NOTHING_AROUND,
    Around,
    There,
    agent_problems,
    cycle_problems,
)
from placet_server.core.admission.manifest_weakening import weakenings
from placet_server.model import capability as capability_model
from placet_server.model import manifest as manifest_model
from placet_server.model import question
from placet_server.model.approval import Terms
from placet_server.model.approval_bounds import terms_problems
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.contract import (
    DAY_SECONDS,
    PAYLOAD_BYTES_HARD_MAX,
    Backoff,
    Contract,
    EffectClass,
    Hazard,
    KeyRequirement,
    Reconcile,
)
from placet_server.model.json_schema import SchemaRefused, compile_schema
from placet_server.model.json_schema_path import foresees
from placet_server.model.manifest import HandlerClaims, Handlers, Manifest, Problem

APPROVAL_HAZARDS = frozenset(
    {Hazard.FINANCIAL, Hazard.LEGAL, Hazard.MEDICAL, Hazard.IDENTITY, Hazard.DELETE, Hazard.MESSAGE}
)
WRITE_LIKE_HAZARDS = frozenset(
    {Hazard.WRITE, Hazard.DELETE, Hazard.MESSAGE, Hazard.FINANCIAL, Hazard.IDENTITY, Hazard.LEGAL}
)
REPEATABLE = frozenset({EffectClass.READ, EffectClass.COMPOSED, EffectClass.IDEMPOTENT})

_YEAR_SECONDS = 365 * 86400
_POINTER = pattern(r"(/([^~/]|~[01])*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was admitted before.

    `digests`: contract digest by (name, version). `owners`: who owns a name, for names that another
    manifest owns. `withdrawn`: versions out of service. `around`: what its agents can meet."""

    previous: Manifest | None = None
    digests: Mapping[tuple[str, str], str]
    owners: Mapping[str, str]
    withdrawn: frozenset[tuple[str, str]] = frozenset()
    around: Around = NOTHING_AROUND


NOTHING_KNOWN = Known(digests={}, owners={})


def check_manifest(
    manifest: Manifest, *, known: Known = NOTHING_KNOWN, handlers: Handlers | None
) -> list[Problem]:
    """Every problem, in the manifest's order; refused if any is no warning.

    `handlers` None: those of another process that could not be asked, which are not checked.
    """
    problems, there = list(_manifest_problems(manifest)), There(manifest, known.around)
    seen: set[tuple[str, str]] = set()
    for index, capability in enumerate(manifest.capabilities):
        path = f"capabilities[{index}]"
        identity = (capability.name, capability.version)
        if identity in seen:
            problems.append(_error(path, "capability_duplicate", f"{_shown(capability)} is listed twice."))
        seen.add(identity)
        problems += _capability_problems(capability, path)
        problems += _known_problems(capability, path, known)
        problems += agent_problems(capability, path, there)
        is_agent = capability.kind is CapabilityKind.AGENT
        claims = AGENT_CLAIMS if is_agent else None if handlers is None else handlers.get(identity)
        problems += _composed_problems(capability, path, claims)
        if handlers is not None or is_agent:
            problems += _handler_problems(capability, path, claims)
    problems += cycle_problems(manifest, there)
    problems += weakenings(manifest, known.previous, known.withdrawn)
    return problems


def is_refused(problems: Sequence[Problem]) -> bool:
    return any(not problem.warning for problem in problems)


def _manifest_problems(manifest: Manifest) -> Iterator[Problem]:
    model = manifest_model
    if not model.NAME_PATTERN.fullmatch(manifest.name) or len(manifest.name) > model.NAME_LENGTH_MAX:
        yield _error(
            "name", "manifest_name", "A manifest's name is lower-case letters, digits, _ and -, at most 64."
        )
    if len(manifest.version) > model.VERSION_LENGTH_MAX:
        yield _error("version", "manifest_version", "A manifest's version has at most 32 characters.")
    if not manifest.capabilities:
        yield _error("capabilities", "manifest_empty", "A manifest needs a capability.")
    if len(manifest.capabilities) > model.CAPABILITIES_MAX:
        yield _error(
            "capabilities", "manifest_too_large", "A manifest has at most 256 capabilities; split it."
        )


def _capability_problems(capability: Capability, path: str) -> Iterator[Problem]:
    model = capability_model
    if not model.NAME_PATTERN.fullmatch(capability.name) or len(capability.name) > model.NAME_LENGTH_MAX:
        text = "A name is lower-case words joined by dots, such as orders.refund, at most 128 characters."
        yield _error(f"{path}.name", "capability_name", text)
    if is_reserved(capability.name):
        text = f"Names that begin with {RESERVED_PREFIX} are the server's own."
        yield _error(f"{path}.name", "name_reserved", text)
    if (
        not model.VERSION_PATTERN.fullmatch(capability.version)
        or len(capability.version) > model.VERSION_LENGTH_MAX
    ):
        text = "A version is letters, digits, '.', '_' and '-', at most 32 characters."
        yield _error(f"{path}.version", "capability_version", text)
    for member, schema in (("input", capability.input_schema), ("output", capability.output_schema)):
        try:
            compile_schema(schema)
        except SchemaRefused as refused:
            place = f" at {refused.path}" if refused.path else ""
            yield _error(
                f"{path}.{member}_schema_json", f"{member}_schema_refused", f"{refused.problem}{place}."
            )
    yield from _presentation_problems(capability, f"{path}.presentation")
    if capability.kind is CapabilityKind.HUMAN and capability.name != question.CAPABILITY:
        text = "HUMAN is the server's own; say TOOL or AGENT."
        yield _error(f"{path}.kind", "kind_reserved", text)
    contract, path = capability.contract, f"{path}.contract"
    yield from _effect_problems(contract, path)
    yield from _key_problems(contract, path)
    yield from _limit_problems(contract, f"{path}.limits")
    yield from _rule_problems(contract, path)
    if contract.approval is not None:
        yield from _approval_problems(capability, contract.approval, f"{path}.approval")


def _presentation_problems(capability: Capability, path: str) -> Iterator[Problem]:
    shown = capability.presentation
    for member, text, length_max in (
        ("title", shown.title, 128),
        ("description", shown.description, 4096),
        ("documentation_url", shown.documentation_url, 1024),
    ):
        if len(text) > length_max:
            yield _error(f"{path}.{member}", f"{member}_too_long", f"At most {length_max} characters.")
    if len(shown.key_fields) > 16 or any(len(field) > 128 for field in shown.key_fields):
        text = "At most 16 key fields of 128 characters."
        yield _error(f"{path}.key_fields", "key_fields_too_long", text)
    if shown.documentation_url and not shown.documentation_url.startswith(("https://", "http://")):
        text = "Documentation is an http or https address."
        yield _error(f"{path}.documentation_url", "documentation_url_scheme", text)


def _effect_problems(contract: Contract, path: str) -> Iterator[Problem]:
    ttl = contract.effect_key_ttl_seconds
    if contract.effect is EffectClass.IDEMPOTENT:
        if ttl is None:
            text = "IDEMPOTENT needs effect_key_ttl: how long the provider remembers our key. Otherwise say UNSAFE."
            yield _error(f"{path}.effect_key_ttl", "effect_key_ttl_missing", text)
        elif not 1 <= ttl <= _YEAR_SECONDS:
            yield _error(f"{path}.effect_key_ttl", "effect_key_ttl_range", "Between 1 s and 365 days.")
    elif ttl is not None:
        text = "Only IDEMPOTENT has an effect_key_ttl; leave it out."
        yield _error(f"{path}.effect_key_ttl", "effect_key_ttl_unexpected", text)
    if contract.effect is EffectClass.COMPOSED and contract.effect_marked:
        text = "COMPOSED has no effect of its own to mark; leave effect_marked out."
        yield _error(f"{path}.effect_marked", "effect_marked_on_composed", text)
    if contract.effect is EffectClass.READ:
        if harmful := sorted(contract.hazards & WRITE_LIKE_HAZARDS):
            text = f"READ changes nothing, yet names {', '.join(harmful)}; choose another effect class."
            yield _error(f"{path}.hazards", "read_with_write_hazard", text)
        if contract.effect_marked:
            text = "READ has no effect to mark; leave effect_marked out."
            yield _error(f"{path}.effect_marked", "effect_marked_on_read", text)
    if not 1 <= contract.attempts_max <= 100:
        yield _error(f"{path}.retry.attempts_max", "attempts_range", "Between 1 and 100.")
    elif contract.attempts_max > 1 and contract.effect not in REPEATABLE and not contract.effect_marked:
        text = (
            f"{contract.effect} must not be repeated: one attempt, or mark the effect and say effect_marked."
        )
        yield _error(f"{path}.retry.attempts_max", "attempts_not_repeatable", text)
    if contract.retry is not None:
        yield from _backoff_problems(contract.retry, f"{path}.retry")
    if contract.reconcile is not None:
        yield from _reconcile_problems(contract, contract.reconcile, f"{path}.reconcile")


def _reconcile_problems(contract: Contract, rule: Reconcile, path: str) -> Iterator[Problem]:
    if contract.effect is EffectClass.READ:
        yield _error(path, "reconcile_on_read", "READ has no effect to look up; leave reconcile out.")
    if contract.effect is EffectClass.COMPOSED:
        text = "COMPOSED has no effect of its own to look up; leave reconcile out."
        yield _error(path, "reconcile_on_composed", text)
    yield from _span_problems(rule, path, "reconcile_range")
    if rule.initial_delay_seconds > rule.delay_seconds_max:
        yield _error(f"{path}.delay_max", "reconcile_order", "The longest pause is below the first.")


def _backoff_problems(backoff: Backoff, path: str) -> Iterator[Problem]:
    yield from _span_problems(backoff, path, "retry_range")
    if not 1 <= backoff.multiplier <= 10:
        yield _error(f"{path}.multiplier", "retry_range", "Between 1 and 10.")
    if backoff.initial_delay_seconds > backoff.delay_seconds_max:
        yield _error(f"{path}.delay_max", "retry_order", "The longest pause is below the first.")


def _span_problems(backoff: Backoff | Reconcile, path: str, code: str) -> Iterator[Problem]:
    for member, seconds, low, high, text in (
        ("initial_delay", backoff.initial_delay_seconds, 0.001, DAY_SECONDS, "Between 1 ms and 24 h."),
        ("delay_max", backoff.delay_seconds_max, 0.001, 7 * DAY_SECONDS, "Between 1 ms and 7 days."),
        ("elapsed_max", backoff.elapsed_seconds_max, 1, _YEAR_SECONDS, "Between 1 s and 365 days."),
    ):
        if seconds is not None and not low <= seconds <= high:
            yield _error(f"{path}.{member}", code, text)


def _key_problems(contract: Contract, path: str) -> Iterator[Problem]:
    rule = contract.idempotency
    if contract.effect is not EffectClass.READ and rule.requirement is not KeyRequirement.REQUIRED:
        text = f"{contract.effect} has an effect, so that a key must be REQUIRED."
        yield _error(f"{path}.idempotency.requirement", "key_not_required", text)
    if not 60 <= rule.ttl_seconds <= _YEAR_SECONDS:
        yield _error(f"{path}.idempotency.ttl", "key_ttl_range", "Between 60 s and 365 days.")


def _limit_problems(contract: Contract, path: str) -> Iterator[Problem]:
    limits = contract.limits
    for member, seconds in (
        ("timeout_default", limits.timeout_default_seconds),
        ("timeout_max", limits.timeout_max_seconds),
    ):
        if not 0.001 <= seconds <= 86400:
            yield _error(f"{path}.{member}", "timeout_range", "Between 1 ms and 24 h.")
    if limits.timeout_default_seconds > limits.timeout_max_seconds:
        text = "The default timeout is above the maximum."
        yield _error(f"{path}.timeout_default", "timeout_order", text)
    delay = limits.queue_delay_seconds_max
    if delay is not None and not 0.001 <= delay <= _YEAR_SECONDS:
        yield _error(f"{path}.queue_delay_max", "queue_delay_range", "Between 1 ms and 365 days.")
    if limits.concurrency_max is not None and not 1 <= limits.concurrency_max <= 1000:
        yield _error(f"{path}.concurrency_max", "concurrency_range", "Between 1 and 1000.")
    if limits.rate_max is not None and not 0.0001 <= limits.rate_max <= 100_000:
        yield _error(f"{path}.rate_max", "rate_range", "Between 0.0001 and 100000 in a second.")
    for member, size in (
        ("input_bytes_max", limits.input_bytes_max),
        ("output_bytes_max", limits.output_bytes_max),
    ):
        if not 1 <= size <= PAYLOAD_BYTES_HARD_MAX:
            text = "Between 1 byte and 3 MiB; pass a reference to larger data."
            yield _error(f"{path}.{member}", "bytes_range", text)


def _rule_problems(contract: Contract, path: str) -> Iterator[Problem]:
    reason = contract.no_approval_reason
    if reason is not None and not 1 <= len(reason.strip()) <= 512:
        text = "A reason of 1 to 512 characters, for the auditor."
        yield _error(f"{path}.no_approval.reason", "no_approval_reason_range", text)
    if contract.approval is not None:
        if reason is not None:
            text = "An approval is asked for, or there is a reason for none: leave one of them out."
            yield _error(f"{path}.no_approval", "approval_choice_twice", text)
    elif reason is None and (grave := sorted(contract.hazards & APPROVAL_HAZARDS)):
        text = (
            f"{', '.join(grave)} needs a choice about approval: say who must say yes in approval, or the reason "
            "for none in no_approval."
        )
        yield _error(f"{path}.no_approval", "approval_choice_missing", text)
    credentials = contract.credentials
    if (credentials.issuers or credentials.scopes) and not credentials.required:
        text = "Issuers or scopes are named, yet no credential is required."
        yield _error(f"{path}.credentials.required", "credential_not_required", text)
    if len(contract.data.sensitive_paths) > 64:
        text = "At most 64 sensitive paths; name a parent instead."
        yield _error(f"{path}.data.sensitive_paths", "sensitive_paths_too_many", text)
    for index, pointer in enumerate(contract.data.sensitive_paths):
        if len(pointer) > 256 or not _POINTER.fullmatch(pointer):
            text = "A JSON Pointer such as /card/number or /items/*/iban, at most 256 characters."
            yield _error(f"{path}.data.sensitive_paths[{index}]", "sensitive_path_malformed", text)


def _approval_problems(capability: Capability, terms: Terms, path: str) -> Iterator[Problem]:
    for found in terms_problems(terms):
        yield _error(f"{path}.{found.member}", found.code, found.message)
    try:
        schema = capability.compiled_input.source.value
    except SchemaRefused:
        # It has a problem of its own.
        return
    for pointer in sorted(terms.material_paths):
        if not foresees(schema, pointer):
            text = f"The input schema has nothing at {pointer}."
            yield _error(f"{path}.material_paths", "material_path_unknown", text)


def _known_problems(capability: Capability, path: str, known: Known) -> Iterator[Problem]:
    if owner := known.owners.get(capability.name):
        text = f"{capability.name} belongs to {owner}; a name has one owner."
        yield _error(f"{path}.name", "name_owned_elsewhere", text)
    admitted = known.digests.get((capability.name, capability.version))
    if admitted is not None and admitted != capability.contract_digest_or_none:
        text = (
            f"{_shown(capability)} was admitted with another contract or schema; give it a new version where it is "
            "declared, as `version` of app.tool or app.agent."
        )
        yield _error(f"{path}.version", "version_changed", text)


def _handler_problems(capability: Capability, path: str, claims: HandlerClaims | None) -> Iterator[Problem]:
    if claims is None:
        text = f"The app has no handler for {_shown(capability)}."
        yield _error(path, "handler_missing", text)
        return
    contract = capability.contract
    for member, declared, claimed, text in (
        ("cancellable", contract.cancellable, claims.cancellable, "does not react to cancellation"),
        ("streaming", contract.streaming, claims.streaming, "sends no chunks"),
        ("effect_marked", contract.effect_marked, claims.effect_marked, "does not claim to call effect()"),
    ):
        if declared and not claimed:
            yield _error(
                f"{path}.contract.{member}",
                f"handler_not_{member}",
                f"{member} is declared, but the handler {text}.",
            )
    if (contract.effect is EffectClass.RECONCILABLE or contract.reconcile is not None) and not claims.lookup:
        member = "effect" if contract.effect is EffectClass.RECONCILABLE else "reconcile"
        text = f"The handler of {_shown(capability)} has no lookup, so nobody can be asked: add one, or say UNSAFE."
        yield _error(f"{path}.contract.{member}", "lookup_missing", text)


def _composed_problems(capability: Capability, path: str, claims: HandlerClaims | None) -> Iterator[Problem]:
    if capability.contract.effect is not EffectClass.COMPOSED:
        return
    if claims is None or not claims.composes:
        text = f"{_shown(capability)} is COMPOSED, which only async handlers of the server's own process are."
        yield _error(f"{path}.contract.effect", "composed_not_local", text)
    elif claims.lookup:
        text = (
            f"{_shown(capability)} is COMPOSED, which has no effect of its own to look up; remove the lookup."
        )
        yield _error(f"{path}.contract.effect", "lookup_on_composed", text)


def _shown(capability: Capability) -> str:
    return f"{capability.name} version {capability.version}"


def _error(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message[:1024])
