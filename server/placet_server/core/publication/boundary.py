"""The crash boundaries, by name: points between two durable facts, where a process may end.

Published so that a crash suite can stop a server at each of them. Nothing is installed in production.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

BoundaryName: TypeAlias = Literal[
    "before_intent_persistence",
    "intent_persisted",
    "decision_persisted",
    "claimed",
    "approval_consumed",
    "before_provider_call",
    "provider_response_received",
    "result_persisted",
    "run_opened",
    "turn_requested",
    "turn_sent",
    "turn_received",
    "turn_answered",
    "turn_failed",
    "calls_admitted",
    "call_told",
    "run_compacted",
    "parked",
    "session_freed",
    "step_ended",
    "parent_woken",
    "reconciliation_started",
    "reconciliation_completed",
    "callback_dispatch_started",
    "callback_delivered",
]

Hook: TypeAlias = Callable[[BoundaryName, str], None]


class Boundary:
    """Calls the installed hook, if any, with the boundary's name and the capability, or the target of a callback.

    The hook may not return.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook

    def reached(self, name: BoundaryName, capability: str) -> None:
        if self.hook is not None:
            self.hook(name, capability)
