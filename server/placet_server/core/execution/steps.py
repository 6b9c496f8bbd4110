"""The steps that a COMPOSED attempt waits for: how they stand, in one look at all of them however many of its calls
ask, and whether it has anything else to do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from placet_server.core.execution.quiet import Quiet
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.store import action as actions
from placet_server.store import reconcile


class Seen(NamedTuple):
    """A step, without payloads. `is_asked`: it is in doubt, and somebody is asked what became of its effect."""

    action: Action
    is_asked: bool

    @property
    def has_ended(self) -> bool:
        """So that the parent is told."""
        state = self.action.state
        return state in TERMINAL or (state is ActionState.AMBIGUOUS and not self.is_asked)


class Steps:
    """Of one attempt. `awaited`: for which of them it is parked; None: it is not. `stands`: told of each step that has
    an action which is waited for, and of that.
    """

    def __init__(self, journal: Journal, parent: Action, park_seconds: float) -> None:
        self.awaited: tuple[str, ...] | None = None
        self.stands: Callable[[str, Action], None] | None = None
        self.quiet = Quiet(park_seconds)
        self._journal = journal
        self._tenant = parent.requester.tenant
        self._key = ("steps", parent.action_id, parent.lease_id)
        self._waited_for: Counter[str] = Counter()
        self._last: dict[str, Seen] = {}
        self._last_began = float("-inf")

    @contextmanager
    def waits_for(self, step: str, child: Action) -> Iterator[None]:
        """It is among those that are looked at."""
        child_id = child.action_id
        if self.stands is not None:
            self.stands(step, child)
        self._waited_for[child_id] += 1
        try:
            yield
        finally:
            self._waited_for[child_id] -= 1
            if not self._waited_for[child_id]:
                del self._waited_for[child_id]

    async def look(self, step: str, child_id: str, *, heard: bool) -> Seen | None:
        """The child as it stands; not `heard`: or as it stood when somebody else of this attempt looked, just now.
        None: the store is away.
        """
        lately = time.monotonic() - self._last_began < self._journal.poll_seconds / 2
        if heard or not lately or child_id not in self._last:
            try:
                self._last = await self._journal.shared.read(self._key, self._read)
            except StoreUnavailable:
                return None
        seen = self._last.get(child_id)
        if seen is not None:
            self.quiet.note(step, seen.action, is_asked=seen.is_asked)
        return seen

    async def _read(self) -> dict[str, Seen]:
        self._last_began = time.monotonic()
        async with self._journal.pool.connection() as connection:
            found = await actions.map_by_ids(connection, self._tenant, list(self._waited_for))
            doubted = [child_id for child_id, each in found.items() if _may_be_asked(each)]
            asked = await reconcile.list_asked(connection, self._tenant, doubted) if doubted else set()
        return {child_id: Seen(each, child_id in asked) for child_id, each in found.items()}


def _may_be_asked(child: Action) -> bool:
    """It is in doubt, and there is somebody who can be asked: of others the parent is told at once."""
    return child.state is ActionState.AMBIGUOUS and child.effect_class == "RECONCILABLE"
