"""What is looked at again before a stored action begins. A decision implements it; the composition root puts the two
together.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action


class Looked(NamedTuple):
    """`verdict`: what it comes to if it may not begin; None: it is not this lease's any more."""

    may_begin: bool
    verdict: Verdict | None = None


class Rechecker(Protocol):
    async def look(self, action: Action) -> Looked:
        """Of an action that runs here under its lease and has not begun. Raises StoreUnavailable."""
