"""The slots of a dispatcher: what runs here that was taken from a queue, whose it is, and what only waits for a child.

A run that waits for a child gives its slot back and takes it again when it goes on, though there may then be more
running than slots: nothing new is claimed until there are fewer. So parents cannot hold every slot while their children
wait for one. As many parents as slots may wait so; beyond that children alone are claimed, and what was begun gets done
before more is begun.

A run that waits for the answer of a model gives its slot back, too: it needs memory and a socket. That is counted
apart, as nobody's end waits for it; as many as `asking_max` may be out so, and who comes then keeps its slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Slots:
    """Belongs to one event loop. `ring`: a slot is free. `lent`: runs that wait for children, without a slot; `asking`:
    those that wait for a model.
    """

    def __init__(self, slots_max: int, ring: Callable[[], None], asking_max: int = 0) -> None:
        self.running = 0
        self.lent = 0
        self.asking = 0
        self.asking_max = asking_max
        self.threads = 0
        self.by_tenant: Counter[str] = Counter()
        self._slots_max = slots_max
        self._ring = ring

    @property
    def children_only(self) -> bool:
        return self.lent >= self._slots_max

    @property
    def in_hand(self) -> int:
        """Runs that have not ended, with a slot or without."""
        return self.running + self.lent + self.asking

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
        self._asks = False
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

    def ask(self) -> None:
        slots = self._slots
        if self._is_lent or self._is_over or slots.asking >= slots.asking_max:
            return
        self._asks = True
        slots.asking += 1
        slots._count(self, -1)

    def asked(self) -> None:
        if self._asks:
            self._asks = False
            self._slots.asking -= 1
            if not self._is_over:
                self._slots._count(self, 1)

    def end(self) -> None:
        """The run has ended."""
        if not self._is_lent and not self._asks:
            self._slots._count(self, -1)
        self._is_over = True
        self.asked()
        if self._is_lent:
            self._is_lent = False
            self._slots.lent -= 1
