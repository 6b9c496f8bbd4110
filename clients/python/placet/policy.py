"""Policy sets and overlays, and requests made of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from placet.requests import timestamp
from placet.v1 import capability_pb2, policy_service_pb2


@dataclass(frozen=True, slots=True)
class Overlay:
    """What a tenant adds to the contracts of capabilities by name: "payments.refund", "payments.*" or "*".

    `hazards`: words as `@app.tool` takes them, for example "financial". `approval`: who has to say yes first, for
    example "1 of role:finance".
    """

    pattern: str
    hazards: Iterable[str] = ()
    approval: str = ""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """`cedar`: the text of the policies."""

    name: str
    cedar: str
    overlays: Iterable[Overlay] = ()

    def message(self) -> policy_service_pb2.PolicySet:
        """Raises ValueError for a hazard that does not exist."""
        return policy_service_pb2.PolicySet(
            name=self.name, cedar=self.cedar, overlays=[_overlay(overlay) for overlay in self.overlays]
        )


def dry_run_request(
    policy_set: PolicySet,
    *,
    capabilities: Iterable[str],
    create_time_min: datetime | None,
    create_time_max: datetime | None,
    page_size: int,
) -> policy_service_pb2.DryRunPolicySetRequest:
    return policy_service_pb2.DryRunPolicySetRequest(
        policy_set=policy_set.message(),
        capabilities=list(capabilities),
        create_time_min=timestamp(create_time_min),
        create_time_max=timestamp(create_time_max),
        page_size=page_size,
    )


def _overlay(overlay: Overlay) -> policy_service_pb2.PolicyOverlay:
    if isinstance(overlay.hazards, str):
        raise ValueError(f"hazards is a list of words; write [{overlay.hazards!r}]")
    hazards = [_hazard(word) for word in overlay.hazards]
    return policy_service_pb2.PolicyOverlay(
        pattern=overlay.pattern, hazards=hazards, approval=overlay.approval
    )


def _hazard(word: str) -> capability_pb2.Hazard.ValueType:
    try:
        return capability_pb2.Hazard.Value(f"HAZARD_{word.upper()}")
    except ValueError:
        known = [name.removeprefix("HAZARD_").lower() for name in capability_pb2.Hazard.keys()[1:]]
        raise ValueError(f"hazards has {word!r}; say one of {', '.join(map(repr, known))}") from None
