"""Policy sets put in force in a kernel."""

from placet_server.core.admission.policy_set import AdmittedSet, PolicySets
from placet_server.core.governance.tools import policy_sets
from placet_server.core.kernel import Kernel
from placet_server.model.caller import Caller
from placet_server.model.policy import Overlay, PolicySet

ADMIN = Caller(tenant="acme", subject="root")


def sets_of(kernel: Kernel) -> PolicySets:
    return policy_sets(kernel)


def set_of(cedar: str, *, name: str = "test", overlays: tuple[Overlay, ...] = ()) -> PolicySet:
    return PolicySet(name=name, cedar=cedar, overlays=overlays)


async def admit(
    kernel: Kernel,
    cedar: str,
    *,
    tenant: str = "acme",
    overlays: tuple[Overlay, ...] = (),
    expected_digest: str = "",
) -> AdmittedSet:
    document = set_of(cedar, overlays=overlays)
    return await sets_of(kernel).admit(ADMIN, tenant, document, expected_digest=expected_digest)
