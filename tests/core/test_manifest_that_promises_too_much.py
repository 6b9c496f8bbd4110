from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from placet_server.core.admission.manifest import Known, check_manifest, is_refused
from placet_server.model.approval_text import parse_terms
from placet_server.model.capability import Capability, Presentation
from placet_server.model.contract import (
    Backoff,
    Contract,
    CredentialRule,
    DataRule,
    EffectClass,
    Hazard,
    IdempotencyRule,
    KeyRequirement,
    KeyScope,
    Limits,
    Reconcile,
    Risk,
    contract_for,
)
from placet_server.model.manifest import HandlerClaims, Manifest, Problem

READ = contract_for(EffectClass.READ)
COMPOSED = contract_for(EffectClass.COMPOSED)
IDEMPOTENT = contract_for(EffectClass.IDEMPOTENT)
UNSAFE = contract_for(EffectClass.UNSAFE)
RECONCILABLE = contract_for(EffectClass.RECONCILABLE)


def capability(contract: Contract = READ, **changes: Any) -> Capability:
    return replace(Capability(name="orders.find", version="1", contract=contract), **changes)


def manifest(*capabilities: Capability) -> Manifest:
    return Manifest(name="shop", version="1", capabilities=capabilities)


def problems(found: Manifest, known: Known | None = None) -> list[Problem]:
    return check_manifest(found, known=known or Known(digests={}, owners={}), handlers=None)


def found(contract: Contract) -> list[tuple[str, str]]:
    return [(p.path, p.code) for p in problems(manifest(capability(contract)))]


@pytest.mark.parametrize("contract", [READ, IDEMPOTENT, UNSAFE, RECONCILABLE])
def test_a_contract_of_one_word_is_admitted(contract: Contract) -> None:
    assert [] == found(contract)


KEYS = IDEMPOTENT.idempotency
REFUSED: list[tuple[Contract, str, str]] = [
    (replace(IDEMPOTENT, effect_key_ttl_seconds=None), "effect_key_ttl", "effect_key_ttl_missing"),
    (replace(IDEMPOTENT, effect_key_ttl_seconds=0.5), "effect_key_ttl", "effect_key_ttl_range"),
    (replace(UNSAFE, effect_key_ttl_seconds=60.0), "effect_key_ttl", "effect_key_ttl_unexpected"),
    (replace(READ, hazards=frozenset({Hazard.WRITE})), "hazards", "read_with_write_hazard"),
    (replace(READ, effect_marked=True), "effect_marked", "effect_marked_on_read"),
    (replace(UNSAFE, attempts_max=2), "retry.attempts_max", "attempts_not_repeatable"),
    (replace(RECONCILABLE, attempts_max=2), "retry.attempts_max", "attempts_not_repeatable"),
    (replace(READ, reconcile=Reconcile()), "reconcile", "reconcile_on_read"),
    (
        replace(RECONCILABLE, reconcile=Reconcile(elapsed_seconds_max=0.5)),
        "reconcile.elapsed_max",
        "reconcile_range",
    ),
    (
        replace(RECONCILABLE, reconcile=Reconcile(initial_delay_seconds=301.0)),
        "reconcile.delay_max",
        "reconcile_order",
    ),
    (replace(READ, attempts_max=0), "retry.attempts_max", "attempts_range"),
    (
        replace(IDEMPOTENT, idempotency=replace(KEYS, requirement=KeyRequirement.OPTIONAL)),
        "idempotency.requirement",
        "key_not_required",
    ),
    (
        replace(UNSAFE, idempotency=replace(KEYS, requirement=KeyRequirement.UNSUPPORTED)),
        "idempotency.requirement",
        "key_not_required",
    ),
    (replace(UNSAFE, idempotency=replace(KEYS, ttl_seconds=1.0)), "idempotency.ttl", "key_ttl_range"),
    (replace(READ, limits=Limits(timeout_default_seconds=1000.0)), "limits.timeout_default", "timeout_order"),
    (replace(READ, limits=Limits(timeout_max_seconds=1e6)), "limits.timeout_max", "timeout_range"),
    (replace(READ, limits=Limits(input_bytes_max=3 * 2**20 + 1)), "limits.input_bytes_max", "bytes_range"),
    (replace(READ, limits=Limits(output_bytes_max=0)), "limits.output_bytes_max", "bytes_range"),
    (replace(READ, limits=Limits(concurrency_max=1001)), "limits.concurrency_max", "concurrency_range"),
    (replace(READ, limits=Limits(rate_max=0.00001)), "limits.rate_max", "rate_range"),
    (
        replace(READ, limits=Limits(queue_delay_seconds_max=0.0)),
        "limits.queue_delay_max",
        "queue_delay_range",
    ),
    (replace(READ, retry=Backoff(initial_delay_seconds=0.0)), "retry.initial_delay", "retry_range"),
    (replace(READ, retry=Backoff(delay_seconds_max=1e6)), "retry.delay_max", "retry_range"),
    (replace(READ, retry=Backoff(elapsed_seconds_max=0.5)), "retry.elapsed_max", "retry_range"),
    (replace(READ, retry=Backoff(multiplier=0.5)), "retry.multiplier", "retry_range"),
    (replace(READ, retry=Backoff(initial_delay_seconds=60.0)), "retry.delay_max", "retry_order"),
    (replace(READ, no_approval_reason="  "), "no_approval.reason", "no_approval_reason_range"),
    (
        replace(READ, credentials=CredentialRule(scopes=("refund",))),
        "credentials.required",
        "credential_not_required",
    ),
    (
        replace(READ, data=DataRule(sensitive_paths=("card/number",))),
        "data.sensitive_paths[0]",
        "sensitive_path_malformed",
    ),
    (
        replace(READ, data=DataRule(sensitive_paths=("/a~2",))),
        "data.sensitive_paths[0]",
        "sensitive_path_malformed",
    ),
    (
        replace(UNSAFE, approval=parse_terms("1 of role:a"), no_approval_reason="Capped."),
        "no_approval",
        "approval_choice_twice",
    ),
    (replace(READ, approval=parse_terms("17 of role:a")), "approval.rule", "approval_count_range"),
    (replace(READ, approval=parse_terms("1 of role:a; ttl=366d")), "approval.ttl", "approval_ttl_range"),
] + [
    (replace(UNSAFE, hazards=frozenset({hazard})), "no_approval", "approval_choice_missing")
    for hazard in (
        Hazard.FINANCIAL,
        Hazard.LEGAL,
        Hazard.MEDICAL,
        Hazard.IDENTITY,
        Hazard.DELETE,
        Hazard.MESSAGE,
    )
]


@pytest.mark.parametrize(("contract", "path", "code"), REFUSED)
def test_a_contract_that_contradicts_itself_is_refused(contract: Contract, path: str, code: str) -> None:
    assert [(f"capabilities[0].contract.{path}", code)] == found(contract)


@pytest.mark.parametrize(
    "contract",
    [
        replace(UNSAFE, attempts_max=3, effect_marked=True),
        replace(UNSAFE, hazards=frozenset({Hazard.FINANCIAL}), no_approval_reason="Amounts are capped."),
        replace(UNSAFE, hazards=frozenset({Hazard.FINANCIAL}), approval=parse_terms("2 of role:finance")),
        replace(UNSAFE, hazards=frozenset({Hazard.WRITE, Hazard.EXTERNAL_NETWORK})),
        replace(READ, hazards=frozenset({Hazard.EXTERNAL_NETWORK})),
        replace(READ, data=DataRule(sensitive_paths=("/card/number", "/items/*/iban", "/a~1b", ""))),
    ],
)
def test_a_contract_that_states_its_choice_is_admitted(contract: Contract) -> None:
    assert [] == found(contract)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "Orders.find"}, "capability_name"),
        ({"name": "orders..find"}, "capability_name"),
        ({"name": "orders.find\n"}, "capability_name"),
        ({"name": "a" * 129}, "capability_name"),
        ({"name": ""}, "capability_name"),
        ({"version": ""}, "capability_version"),
        ({"version": "1 2"}, "capability_version"),
        ({"version": "1" * 33}, "capability_version"),
        ({"input_schema": "{"}, "input_schema_refused"),
        ({"output_schema": '{"$ref":"http://example.com"}'}, "output_schema_refused"),
        ({"input_schema": '{"$ref":"file:///etc/passwd"}'}, "input_schema_refused"),
        ({"presentation": Presentation(title="x" * 129)}, "title_too_long"),
        ({"presentation": Presentation(documentation_url="javascript:alert(1)")}, "documentation_url_scheme"),
    ],
)
def test_a_malformed_capability_is_refused(changes: dict[str, Any], code: str) -> None:
    assert [code] == [p.code for p in problems(manifest(capability(**changes)))]


def test_every_problem_is_reported_at_once() -> None:
    bad = replace(IDEMPOTENT, effect_key_ttl_seconds=None, attempts_max=0)
    reported = problems(
        Manifest(name="Shop", capabilities=(capability(bad, input_schema="{"), capability(bad, name="X")))
    )
    assert [
        "manifest_name",
        "input_schema_refused",
        "effect_key_ttl_missing",
        "attempts_range",
        "capability_name",
        "effect_key_ttl_missing",
        "attempts_range",
    ] == [p.code for p in reported]
    assert is_refused(reported)


def test_a_capability_listed_twice_is_refused_and_two_versions_are_not() -> None:
    assert ["capability_duplicate"] == [p.code for p in problems(manifest(capability(), capability()))]
    assert [] == problems(manifest(capability(), capability(version="2")))


def test_an_empty_or_endless_manifest_is_refused() -> None:
    assert ["manifest_empty"] == [p.code for p in problems(manifest())]
    many = (capability(name=f"tool{i}") for i in range(257))
    assert ["manifest_too_large"] == [p.code for p in problems(manifest(*many))]


def test_a_name_of_another_manifest_is_refused() -> None:
    known = Known(digests={}, owners={"orders.find": "manifest 'stock'"})
    assert ["name_owned_elsewhere"] == [p.code for p in problems(manifest(capability()), known)]


def test_a_version_never_changes_but_its_presentation_may() -> None:
    old = capability(input_schema='{"type":"object"}')
    known = Known(previous=manifest(old), digests={("orders.find", "1"): old.contract_digest}, owners={})
    reworded = replace(old, presentation=Presentation(title="Find an order"))
    assert [] == problems(manifest(reworded), known)
    changed = replace(old, input_schema="")
    reported = problems(manifest(changed), known)
    assert ["version_changed", "input_schema_changed"] == [p.code for p in reported]
    assert [False, True] == [p.warning for p in reported]


def test_a_schema_that_lets_less_through_takes_nothing_back() -> None:
    old = capability(output_schema='{"type":"object"}')
    known = Known(previous=manifest(old), digests={}, owners={})
    promise = '{"type":"object","required":["id"]}'
    more = replace(old, version="2", input_schema='{"type":"object"}', output_schema=promise)
    assert [] == problems(manifest(more), known)


@pytest.mark.parametrize(
    ("claims", "codes"),
    [
        (None, ["handler_missing"]),
        (
            HandlerClaims(),
            ["handler_not_cancellable", "handler_not_streaming", "handler_not_effect_marked"],
        ),
        (HandlerClaims(cancellable=True, streaming=True, effect_marked=True), []),
    ],
)
def test_declared_support_must_be_backed_by_the_handler(
    claims: HandlerClaims | None, codes: list[str]
) -> None:
    declared = capability(replace(UNSAFE, cancellable=True, streaming=True, effect_marked=True))
    handlers = {} if claims is None else {("orders.find", "1"): claims}
    assert codes == [p.code for p in check_manifest(manifest(declared), handlers=handlers)]


@pytest.mark.parametrize("contract", [RECONCILABLE, replace(UNSAFE, reconcile=Reconcile())], ids=str)
def test_what_can_be_looked_up_has_somebody_who_looks_it_up(contract: Contract) -> None:
    for claims, codes in ((HandlerClaims(), ["lookup_missing"]), (HandlerClaims(lookup=True), [])):
        handlers = {("orders.find", "1"): claims}
        found = check_manifest(manifest(capability(contract)), handlers=handlers)
        assert codes == [p.code for p in found]


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        (None, "composed_not_local"),
        (HandlerClaims(), "composed_not_local"),
        (HandlerClaims(composes=True, lookup=True), "lookup_on_composed"),
        (HandlerClaims(composes=True), None),
    ],
)
def test_what_only_calls_others_is_async_and_here_and_looked_up_by_nobody(
    claims: HandlerClaims | None, code: str | None
) -> None:
    declared = manifest(capability(COMPOSED))
    handlers = None if claims is None else {("orders.find", "1"): claims}
    assert ([] if code is None else [code]) == [p.code for p in check_manifest(declared, handlers=handlers)]


def test_what_only_calls_others_has_no_effect_of_its_own_to_mark_or_look_up() -> None:
    handlers = {("orders.find", "1"): HandlerClaims(composes=True, effect_marked=True, lookup=True)}
    declared = manifest(capability(replace(COMPOSED, effect_marked=True, reconcile=Reconcile())))
    codes = ["effect_marked_on_composed", "reconcile_on_composed", "lookup_on_composed"]
    assert codes == [p.code for p in check_manifest(declared, handlers=handlers)]


Change = Callable[[Contract], Contract]
FULL = replace(
    IDEMPOTENT,
    hazards=frozenset({Hazard.FINANCIAL, Hazard.WRITE}),
    no_approval_reason="Capped.",
    risk=Risk.HIGH,
    credentials=CredentialRule(required=True, issuers=("bank",), scopes=("refund",)),
    data=DataRule(sensitive_paths=("/card",)),
    cancellable=True,
    streaming=True,
)
TERMS = parse_terms("2 of role:finance")
ASKED = replace(UNSAFE, approval=TERMS)
WEAKER: list[tuple[Contract, Change, str]] = [
    (
        FULL,
        lambda c: replace(c, effect=EffectClass.UNSAFE, effect_key_ttl_seconds=None, attempts_max=1),
        "effect_weaker",
    ),
    (UNSAFE, lambda c: replace(c, effect=EffectClass.RECONCILABLE), "effect_claims_more"),
    (
        RECONCILABLE,
        lambda c: replace(c, reconcile=Reconcile(automatic=False)),
        "reconcile_automatic_dropped",
    ),
    (
        RECONCILABLE,
        lambda c: replace(c, reconcile=Reconcile(elapsed_seconds_max=60.0)),
        "reconcile_shorter",
    ),
    (FULL, lambda c: replace(c, effect_key_ttl_seconds=1e6), "effect_key_ttl_raised"),
    (UNSAFE, lambda c: replace(c, effect_marked=True), "effect_marked_added"),
    (FULL, lambda c: replace(c, attempts_max=9), "attempts_raised"),
    (FULL, lambda c: replace(c, idempotency=replace(KEYS, ttl_seconds=60.0)), "key_ttl_shortened"),
    (FULL, lambda c: replace(c, idempotency=replace(KEYS, scope=KeyScope.TENANT)), "key_scope_changed"),
    (
        replace(READ, idempotency=IdempotencyRule(requirement=KeyRequirement.REQUIRED)),
        lambda c: READ,
        "key_requirement_dropped",
    ),
    (FULL, lambda c: replace(c, limits=Limits(timeout_max_seconds=901.0)), "timeout_raised"),
    (FULL, lambda c: replace(c, limits=Limits(input_bytes_max=2**21)), "bytes_raised"),
    (
        replace(READ, limits=Limits(concurrency_max=3)),
        lambda c: replace(c, limits=Limits()),
        "concurrency_raised",
    ),
    (
        replace(READ, limits=Limits(rate_max=3)),
        lambda c: replace(c, limits=Limits(rate_max=3.5)),
        "rate_raised",
    ),
    (
        replace(READ, limits=Limits(queue_delay_seconds_max=60.0)),
        lambda c: replace(c, limits=Limits()),
        "queue_delay_raised",
    ),
    (
        replace(READ, retry=Backoff(elapsed_seconds_max=60.0)),
        lambda c: replace(c, retry=Backoff(elapsed_seconds_max=61.0)),
        "retry_longer",
    ),
    (FULL, lambda c: replace(c, hazards=frozenset({Hazard.FINANCIAL})), "hazards_removed"),
    (FULL, lambda c: replace(c, risk=Risk.LOW), "risk_lowered"),
    (FULL, lambda c: replace(c, no_approval_reason="Other."), "no_approval_reason_changed"),
    (
        FULL,
        lambda c: replace(c, credentials=replace(c.credentials, issuers=())),
        "credential_issuers_widened",
    ),
    (FULL, lambda c: replace(c, credentials=replace(c.credentials, scopes=())), "credential_scopes_removed"),
    (FULL, lambda c: replace(c, data=DataRule()), "sensitive_paths_removed"),
    (FULL, lambda c: replace(c, cancellable=False), "cancellable_dropped"),
    (FULL, lambda c: replace(c, streaming=False), "streaming_dropped"),
    (ASKED, lambda c: replace(c, approval=None), "approval_removed"),
    (ASKED, lambda c: replace(c, approval=parse_terms("1 of role:finance")), "approval_rule_loosened"),
]


@pytest.mark.parametrize(("old", "change", "code"), WEAKER)
def test_every_weakening_against_the_version_before_is_a_warning(
    old: Contract, change: Change, code: str
) -> None:
    known = Known(previous=manifest(capability(old)), digests={}, owners={})
    reported = problems(manifest(capability(change(old), version="2")), known)
    assert [code] == [p.code for p in reported]
    assert not is_refused(reported)


def test_an_approval_that_is_asked_for_more_strictly_is_no_weakening() -> None:
    known = Known(previous=manifest(capability(ASKED)), digests={}, owners={})
    stricter = replace(ASKED, approval=parse_terms("2 of role:finance and 1 of role:legal; ttl=1h"))
    assert [] == problems(manifest(capability(stricter, version="2")), known)


SCHEMA = """{"type": "object", "$defs": {"sum": {"type": "object", "properties": {"value": {}}}},
"properties": {"to": {"type": "string"}, "sum": {"$ref": "#/$defs/sum"}, "free": {}, "a/b": {},
  "lines": {"type": "array", "items": {"anyOf": [{"properties": {"iban": {}}}, {"properties": {"bic": {}}}]}}}}"""


@pytest.mark.parametrize(
    ("pointer", "is_foreseen"),
    [
        ("", True),
        ("/to", True),
        ("/too", False),
        ("/to/name", False),
        ("/sum/value", True),
        ("/sum/values", False),
        ("/free/any/thing", True),
        ("/a~1b", True),
        ("/lines/*/iban", True),
        ("/lines/0/bic", True),
        ("/lines/*/sum", False),
        ("/lines/iban", False),
        ("/*/value", True),
    ],
)
def test_a_material_path_is_one_that_the_schema_foresees(pointer: str, is_foreseen: bool) -> None:
    contract = replace(UNSAFE, approval=replace(TERMS, material_paths=frozenset({pointer})))
    found = problems(manifest(capability(contract, input_schema=SCHEMA)))
    assert ([] if is_foreseen else ["material_path_unknown"]) == [p.code for p in found]
    assert [] == problems(manifest(capability(contract)))


def test_a_dropped_credential_and_a_dropped_capability_are_warnings() -> None:
    known = Known(previous=manifest(capability(FULL), capability(name="orders.list")), digests={}, owners={})
    reported = problems(manifest(capability(replace(FULL, credentials=CredentialRule()), version="2")), known)
    assert {
        "credential_dropped",
        "credential_issuers_widened",
        "credential_scopes_removed",
        "capability_removed",
    } == {p.code for p in reported}
    assert not is_refused(reported)


def test_a_stricter_contract_raises_no_warning() -> None:
    old, new = capability(READ), capability(replace(READ, risk=Risk.HIGH, attempts_max=1), version="2")
    assert [] == problems(manifest(new), Known(previous=manifest(old), digests={}, owners={}))
