"""The slots of a dispatcher: what runs here that was taken from a queue, whose it is, and what only waits for a child.

A run that waits for a child gives its slot back and takes it again when it goes on, though there may then be more
running than slots: nothing new is claimed until there are fewer. So parents cannot hold every slot while their children
wait for one. As many parents as slots may wait so; beyond that children alone are claimed, and what was begun gets done
before more is begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Slots:
    """Belongs to one event loop. `ring`: a slot is free. `lent`: runs that wait for children, without a slot."""

    def __init__(self, slots_max: int, ring: Callable[[], None]) -> None:
        self.running = 0
        self.lent = 0
        self.threads = 0
        self.by_tenant: Counter[str] = Counter()
        self._slots_max = slots_max
        self._ring = ring

    @property
    def children_only(self) -> bool:
        return self.lent >= self._slots_max

    def free(self) -> int:
        return self._slots_max - self.running

    def take(self, tenant: str, threads: int) -> Slot:
        slot = Slot(self, tenant, threads)
        self._count(slot, 1)
        return slot

    def _count(self, slot: Slot, change: int) -> None:
        self.running += change
        self.threads += change * slot.threads
        self.by_tenant[slot.tenant] += change
        if not self.by_tenant[slot.tenant]:
            del self.by_tenant[slot.tenant]
        if change < 0:
            self._ring()


class Slot:
    """Of one run."""

    def __init__(self, slots: Slots, tenant: str, threads: int) -> None:
        self.tenant = tenant
        self.threads = threads
        self._slots = slots
        self._is_lent = False
        self._is_over = False

    async def lend(self) -> None:
        if not self._is_over:
            self._is_lent = True
            self._slots.lent += 1
            self._slots._count(self, -1)

    async def take_back(self) -> None:
        if self._is_lent:
            self._is_lent = False
            self._slots.lent -= 1
            if not self._is_over:
                self._slots._count(self, 1)

    def end(self) -> None:
        """The run has ended."""
        if not self._is_lent:
            self._slots._count(self, -1)
        self._is_over = True
        if self._is_lent:
            self._is_lent = False
            self._slots.lent -= 1
