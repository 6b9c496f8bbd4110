import json
from dataclasses import replace
from typing import Any

import pytest

from placet_server.model.agent import (
    AgentSpec,
    DelegateChoice,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
)
from placet_server.model.approval_text import parse_terms
from placet_server.model.ask import INPUT_SCHEMA_TEXT
from placet_server.model.capability import Capability, CapabilityKind, Presentation
from placet_server.model.contract import (
    Backoff,
    CredentialRule,
    DataRule,
    EffectClass,
    Hazard,
    Limits,
    Reconcile,
    Risk,
    contract_for,
)
from placet_server.model.document import DocumentRefused
from placet_server.model.manifest import LocalApp, Manifest
from placet_server.model.usage import Budget

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


FULL = replace(
    contract_for(EffectClass.RECONCILABLE),
    effect_marked=True,
    attempts_max=3,
    hazards=frozenset({Hazard.FINANCIAL}),
    risk=Risk.HIGH,
    retry=Backoff(multiplier=3.0),
    reconcile=Reconcile(),
    limits=Limits(concurrency_max=3, rate_max=0.5, queue_delay_seconds_max=9.0),
    approval=parse_terms("2 of role:finance; ttl=4h"),
    credentials=CredentialRule(required=True, scopes=("refund",)),
    data=DataRule(sensitive_paths=("/card",)),
    cancellable=True,
    streaming=True,
)
# Of what was admitted before agents were: another digest would refuse it as a version that has changed.
ADMITTED = {
    contract_for(EffectClass.READ): "47a4f9ec7dc07efa6a85f8d1f1ca15af8300eef867d7dec8a7d4f42b8059b091",
    contract_for(EffectClass.COMPOSED): "172f3da5252607823a72159b756862b53023679d83740c92b9391c5173e76bb1",
    contract_for(EffectClass.IDEMPOTENT): "177058d27156eeb9dcf5334120f8017c5977ba1e22651cbc4f7f556b005c7218",
    contract_for(
        EffectClass.RECONCILABLE
    ): "c5c4be775024f591b0700b5b095dd47f8fecdea7efa9d7746ee25c0290b01ecf",
    contract_for(EffectClass.UNSAFE): "3eb2ecba7a84251d6924ae872fa36a6156a9f2416fa5a87effc475827ccea5ab",
}


def test_contracts_of_tools_and_questions_keep_the_digests_that_they_had_before_there_were_agents() -> None:
    for contract, digest in ADMITTED.items():
        assert digest == Capability(name="orders.find", version="1", contract=contract).contract_digest
    question = replace(QUESTION, contract=contract_for(EffectClass.READ))
    assert "13522346d2af69442606ca48e1cce5bcc960891fad63133796142975d450cd95" == question.contract_digest
    full = replace(
        REFUND, input_schema='{"type": "object"}', output_schema='{"type":"string"}', contract=FULL
    )
    assert "a4d1871da59ac70a87a24575ecd831ff218c3e7e95c3235e3002f3ecbfd41d3e" == full.contract_digest


QUESTION = Capability(
    name="human.input",
    version="1",
    kind=CapabilityKind.HUMAN,
    input_schema='{"type":"object"}',
    contract=contract_for(EffectClass.READ),
)
HELPER = Capability(
    name="support.helper",
    version="1",
    kind=CapabilityKind.AGENT,
    input_schema=INPUT_SCHEMA_TEXT,
    contract=contract_for(EffectClass.COMPOSED),
    agent=AgentSpec(
        model="openai:gpt-5",
        instructions="Help {{name}}.",
        tools=(ToolChoice(name="orders.*"), ToolChoice(name="payments.refund", scopes=frozenset())),
        delegates=(DelegateChoice(agent="support.writer", budget=Budget(turns=3)),),
        budget=Budget(turns=10, active_ms=1500),
        settings=ModelSettings(temperature=0.0, parallel_tool_calls=False),
    ),
)


def test_an_agent_is_read_back_as_it_was_stored() -> None:
    document = json.loads(json.dumps(HELPER.to_document()))
    assert HELPER == Capability.from_document(document)
    scopes = [tool.get("scopes") for tool in document["agent"]["tools"]]
    assert [None, []] == scopes


def test_the_digest_of_an_agent_is_pinned_and_covers_all_of_its_spec() -> None:
    assert "c00eacc830ab12fb78a6e1c0dce04a2336a360b29e5f02692b09d4f59942759c" == HELPER.contract_digest
    spec = HELPER.agent
    assert spec is not None
    for changed in (
        replace(spec, model="openai:gpt-6"),
        replace(spec, instructions=""),
        replace(spec, tools=spec.tools[:1]),
        replace(spec, tools=(spec.tools[0], replace(spec.tools[1], scopes=None))),
        replace(spec, delegates=()),
        replace(spec, budget=replace(spec.budget, turns=11)),
        replace(spec, memory=Memory(keep_turns=9)),
        replace(spec, settings=ModelSettings()),
        replace(spec, output_repairs_max=0),
        replace(spec, provider_retry=ProviderRetry(tries_max=1)),
        replace(spec, credential="other"),
    ):
        assert HELPER.contract_digest != replace(HELPER, agent=changed).contract_digest


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
