"""What every server offers by itself: capabilities of its release, and of no catalogue.

They are found before anything that was admitted, and their names begin as no admitted one may. Some of them govern the
server itself; what such a call asks for is completed by the server before the policies see it, so that nobody can say
for himself how harmless it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from placet_server.model.capability import Capability
from placet_server.model.json_text import CanonicalJson
from placet_server.model.manifest import LOCAL_TENANT
from placet_server.store.catalog import StoredCapability

if TYPE_CHECKING:
    from placet_server.core.admission.pipeline import Call

BUILT_IN_MANIFEST = "placet"
RESERVED_PREFIX = "placet."


class Prepared(NamedTuple):
    """`input` is what is stored, shown and run. The key is there, whether the caller has said one or not."""

    input: CanonicalJson
    idempotency_key: str


class Governor(Protocol):
    """Knows the built-in capabilities that govern."""

    governed: frozenset[str]

    async def prepare(
        self, call: Call, capability: Capability, given: CanonicalJson, parent: str
    ) -> Prepared:
        """Raises what is wrong with the request as the catalogue, the policies or the actions stand; ScopeMissing,
        ContractViolation for a handler that would govern, StoreUnavailable. Nothing is stored.
        """


class NoGovernor:
    """Nothing of the kind is built in."""

    governed: frozenset[str] = frozenset()

    async def prepare(
        self, call: Call, capability: Capability, given: CanonicalJson, parent: str
    ) -> Prepared:
        raise AssertionError(capability.name)


def stored(capabilities: Iterable[Capability]) -> dict[str, StoredCapability]:
    """As the catalogue shows them, by name: one version of each, that of this release."""
    return {
        capability.name: StoredCapability(
            tenant=LOCAL_TENANT,
            manifest=BUILT_IN_MANIFEST,
            capability=capability,
            contract_digest=capability.contract_digest,
            current=True,
        )
        for capability in capabilities
    }


def is_reserved(name: str) -> bool:
    """Of a capability: only this project may use it."""
    return name.startswith(RESERVED_PREFIX)
