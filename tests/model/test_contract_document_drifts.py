import json
from dataclasses import replace
from typing import Any

import pytest

from placet_server.model.approval_text import parse_terms
from placet_server.model.capability import Capability, Presentation
from placet_server.model.contract import DataRule, EffectClass, Hazard, contract_for
from placet_server.model.document import DocumentRefused
from placet_server.model.manifest import LocalApp, Manifest

REFUND = Capability(
    name="orders.refund",
    version="2",
    input_schema='{"type": "object", "required": ["order"]}',
    contract=replace(
        contract_for(EffectClass.IDEMPOTENT),
        hazards=frozenset({Hazard.WRITE, Hazard.FINANCIAL}),
        no_approval_reason="Capped.",
        data=DataRule(sensitive_paths=("/card/number",)),
    ),
    presentation=Presentation(title="Refund", key_fields=("order",)),
)
SHOP = Manifest(name="shop", version="2026-11", capabilities=(REFUND,), runs=LocalApp(app="shop:app"))


def test_what_is_stored_is_read_back_equal() -> None:
    assert SHOP == Manifest.from_text(SHOP.to_text())
    assert REFUND == Capability.from_document(json.loads(json.dumps(REFUND.to_document())))


def test_approval_terms_are_kept_as_their_text() -> None:
    terms = parse_terms("2 of role:finance; ttl=4h; material=/amount")
    asked = replace(REFUND, contract=replace(REFUND.contract, approval=terms))
    document = json.loads(json.dumps(asked.to_document()))
    assert "2 of role:finance; ttl=4h; material=/amount" == document["contract"]["approval"]
    assert asked == Capability.from_document(document)


def test_the_digest_of_a_contract_is_pinned() -> None:
    assert "b907d54b0d59cfe300180585cb0c8fa0081a204b303e984058679cc6b8f95c33" == REFUND.contract_digest


def test_the_digest_ignores_spelling_and_presentation_alone() -> None:
    respelled = replace(
        REFUND, input_schema='{"required":["order"],"type":"object"}', presentation=Presentation()
    )
    assert REFUND.contract_digest == respelled.contract_digest
    asked = replace(REFUND.contract, approval=parse_terms("2 of role:finance"))
    for changed in (
        replace(REFUND, contract=asked),
        replace(REFUND, output_schema="{}"),
        replace(REFUND, input_schema="true"),
        replace(REFUND, contract=replace(REFUND.contract, cancellable=True)),
    ):
        assert REFUND.contract_digest != changed.contract_digest


def test_the_digest_of_a_manifest_covers_presentation() -> None:
    reworded = replace(SHOP, capabilities=(replace(REFUND, presentation=Presentation()),))
    assert SHOP.digest() != reworded.digest()


@pytest.mark.parametrize(
    ("member", "value", "path"),
    [
        (("surprise",), 1, ""),
        (("contract", "approval"), {}, "contract.approval"),
        (("contract", "approval"), "2 of finance", "contract.approval"),
        (("contract", "surprise"), None, "contract"),
        (("contract", "effect"), "HARMLESS", "contract.effect"),
        (("contract", "hazards"), ["FIRE"], "contract.hazards[0]"),
        (("contract", "hazards"), "WRITE", "contract.hazards"),
        (("contract", "attempts_max"), True, "contract.attempts_max"),
        (("contract", "attempts_max"), "1", "contract.attempts_max"),
        (("contract", "idempotency"), None, "contract.idempotency"),
        (("contract",), [], "contract"),
        (("name",), 7, "name"),
    ],
)
def test_a_document_of_another_shape_is_refused_with_its_place(
    member: tuple[str, ...], value: Any, path: str
) -> None:
    document = json.loads(json.dumps(REFUND.to_document()))
    parent = document
    for step in member[:-1]:
        parent = parent[step]
    parent[member[-1]] = value
    with pytest.raises(DocumentRefused) as refused:
        Capability.from_document(document)
    assert path == refused.value.path


def test_a_missing_member_is_named() -> None:
    document = REFUND.to_document()
    del document["contract"]["idempotency"]
    with pytest.raises(DocumentRefused) as refused:
        Capability.from_document(document)
    assert "contract.idempotency" == refused.value.path
