"""What is looked at again between a claim and the handler, under the lease: whether people still say so."""

from __future__ import annotations

from placet_server.core.decision.consume import consume
from placet_server.core.execution.engine import Engine
from placet_server.core.publication.settle import settle
from placet_server.model.action import Action


async def begin(engine: Engine, action: Action) -> Action | None:
    """The running action, as it may begin; None if it has ended instead. Raises StoreUnavailable, and leaves the row
    to its ownership check.
    """
    verdict = await consume(engine.journal, action)
    if verdict is None:
        return action
    settled = await settle(engine.journal, action, verdict)
    if settled is not None:
        engine.observer.settled(settled, 0.0)
    return None
