"""A contract comes back from the wire as it went, and what nobody said is not said for them."""

from dataclasses import replace

import pytest

from placet.v1 import capability_pb2
from placet_server.model.capability import Capability
from placet_server.model.contract import Backoff, Contract, EffectClass, Limits, Reconcile, contract_for
from placet_server.model.manifest import Manifest
from placet_server.rpc.convert.capability import manifest_message, manifest_of

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
    ],
    ids=str,
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
