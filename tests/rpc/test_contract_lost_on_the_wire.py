"""A contract comes back from the wire as it went, and what nobody said is not said for them."""

from dataclasses import replace

import pytest
from google.protobuf.duration_pb2 import Duration

from placet.v1 import approval_pb2, capability_pb2
from placet_server.model.approval_text import format_terms, parse_terms
from placet_server.model.capability import Capability
from placet_server.model.contract import Backoff, Contract, EffectClass, Limits, Reconcile, contract_for
from placet_server.model.errors import MalformedRequest
from placet_server.model.manifest import Manifest
from placet_server.rpc.convert.approval import terms_message, terms_of
from placet_server.rpc.convert.capability import manifest_message, manifest_of

WHOLE = (
    "2 of role:finance,user:anna and (1 of role:legal or 1 of group:board); ttl=4h; evidence=reason,ticket; "
    "login=mfa|hwk; login_age=10m; escalate=role:head after 1h; requester=may; material=/amount,/to"
)
READ = contract_for(EffectClass.READ)


def through_the_wire(contract: Contract) -> Capability:
    capability = Capability(name="orders.find", version="1", contract=contract)
    sent = manifest_message(Manifest(name="shop", capabilities=(capability,))).SerializeToString()
    return manifest_of(capability_pb2.Manifest.FromString(sent)).capabilities[0]


@pytest.mark.parametrize(
    "contract",
    [
        *(contract_for(effect) for effect in EffectClass),
        replace(READ, retry=Backoff(initial_delay_seconds=0.25, multiplier=3.0, elapsed_seconds_max=3600.0)),
        replace(READ, reconcile=Reconcile(automatic=False, elapsed_seconds_max=7200.0)),
        replace(READ, limits=Limits(queue_delay_seconds_max=90.0)),
        replace(READ, limits=Limits(concurrency_max=3, rate_max=0.5)),
        replace(READ, approval=parse_terms(WHOLE)),
        replace(READ, approval=parse_terms("1 of user:anna; ttl=30s")),
    ],
    ids=lambda contract: f"{contract.effect}-{contract.approval is not None}-{contract.risk}",
)
def test_a_contract_comes_back_as_it_went(contract: Contract) -> None:
    assert contract == through_the_wire(contract).contract


def test_a_retry_rule_of_which_nothing_is_said_leaves_the_digest_as_it_was() -> None:
    message = capability_pb2.Manifest(
        capabilities=[
            capability_pb2.Capability(
                name="orders.find",
                version="1",
                contract=capability_pb2.Contract(
                    effect=capability_pb2.EFFECT_CLASS_READ, retry=capability_pb2.RetryRule(attempts_max=3)
                ),
            )
        ]
    )
    (capability,) = manifest_of(message).capabilities
    assert capability.contract.retry is None
    assert capability.contract_digest == through_the_wire(READ).contract_digest


def test_terms_may_be_said_by_text_alone_or_by_members_alone() -> None:
    terms = parse_terms(WHOLE)
    by_members = terms_message(terms)
    assert format_terms(terms) == by_members.text
    by_members.ClearField("text")
    assert terms == terms_of(by_members, "approval")
    assert terms == terms_of(approval_pb2.ApprovalTerms(text=WHOLE), "approval")


NESTED = approval_pb2.ApprovalRule(any_of=approval_pb2.ApprovalRules(rules=[approval_pb2.ApprovalRule()]))


@pytest.mark.parametrize(
    ("message", "field", "description"),
    [
        (approval_pb2.ApprovalTerms(), "rule", "say who must say yes"),
        (approval_pb2.ApprovalTerms(rule=NESTED), "rule.any_of.rules[0]", "say who must say yes"),
        (approval_pb2.ApprovalTerms(text="2 of finance"), "text", "role:…"),
        (
            approval_pb2.ApprovalTerms(text="1 of role:a", ttl=Duration(seconds=9)),
            "rule",
            "say who must say yes",
        ),
        (
            approval_pb2.ApprovalTerms(text="1 of role:a", evidence=[approval_pb2.EVIDENCE_KIND_UNSPECIFIED]),
            "evidence",
            "is none",
        ),
    ],
)
def test_terms_that_say_nothing_or_two_things_are_refused_by_their_place(
    message: approval_pb2.ApprovalTerms, field: str, description: str
) -> None:
    capability = capability_pb2.Capability(
        contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_READ, approval=message)
    )
    with pytest.raises(MalformedRequest) as refused:
        manifest_of(capability_pb2.Manifest(capabilities=[capability]))
    (violation,) = refused.value.violations
    assert f"manifest.capabilities[0].contract.approval.{field}" == violation.field
    assert description in violation.description


def test_a_text_that_says_something_else_than_its_members_is_refused() -> None:
    message = terms_message(parse_terms("1 of role:a"))
    message.text = "1 of role:b"
    with pytest.raises(MalformedRequest) as refused:
        terms_of(message, "approval")
    assert "approval.text" == refused.value.violations[0].field
    half = terms_message(parse_terms("1 of role:a"))
    half.ttl.nanos = 5
    with pytest.raises(MalformedRequest) as refused:
        terms_of(half, "approval")
    assert "approval.ttl" == refused.value.violations[0].field
