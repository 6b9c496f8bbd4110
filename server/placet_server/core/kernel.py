"""The core as the RPC layer holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placet_server.core.admission.builtin import Governor, NoGovernor
from placet_server.core.admission.catalog import Catalog
from placet_server.core.admission.message import SKEW_SECONDS
from placet_server.core.admission.policy import PolicyGate
from placet_server.core.admission.quota import Quotas
from placet_server.core.decision.authority import AuthoritySource, TokenAuthority
from placet_server.core.decision.policy import Policies
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import Engine
from placet_server.core.publication.journal import Journal
from placet_server.model.durability import Durability
from placet_server.model.session import OPEN_MAX_DEFAULT

if TYPE_CHECKING:
    from placet_server.core.admission.dispatch import Dispatcher

SETTLE_SECONDS = 5.0
CLAIM_POLL_SECONDS = 0.01


@dataclass(slots=True, kw_only=True)
class Kernel:
    """`lease_seconds`: after so long without a heartbeat this boot's leases go to others. `dispatcher`: None if this
    process takes nothing from queues. `message_skew_seconds`: how far a message with an id may be from its time.
    `sessions_open_max`: of one subject. `quotas`: None if no tenant has one. `authority`: whose roles and groups count
    for a decision. `hurry_reconciler`: there may be something to ask about. `may_declare_dead`: this process has seen
    the store answer for a whole lease.
    """

    catalog: Catalog
    policies: Policies
    policy_gate: PolicyGate
    engine: Engine
    durability: Durability
    lease_seconds: float
    dispatcher: Dispatcher | None = None
    governor: Governor = field(default_factory=NoGovernor)
    message_skew_seconds: float = SKEW_SECONDS
    sessions_open_max: int = OPEN_MAX_DEFAULT
    quotas: Quotas | None = None
    authority: AuthoritySource = field(default_factory=TokenAuthority)
    hurry_reconciler: Callable[[], None] = lambda: None
    may_declare_dead: Callable[[], bool] = lambda: False
    is_draining: bool = False
    is_fenced: bool = False

    @property
    def journal(self) -> Journal:
        return self.engine.journal

    @property
    def boot_id(self) -> str:
        return self.engine.journal.boot_id

    def start_draining(self) -> None:
        """Nothing new is started; what runs goes on."""
        self.is_draining = True

    def fence(self) -> None:
        """This boot was declared dead: it starts nothing any more, and the process is to end."""
        self.is_fenced = True
        self.is_draining = True

    def is_settling(self, action_id: str) -> bool:
        """Its handler has ended here, so its end is about to be known."""
        run = self.engine.runs.get(action_id)
        return run is not None and run.handler_has_ended

    def overdue_thread_count(self) -> int:
        return self.engine.threads.overdue_count() + self.engine.lookups.threads.overdue_count()

    async def drain(self, seconds: float) -> bool:
        """Wait for what runs; stop what still runs after so long, and let it settle.

        False if something would not stop.
        """
        self.start_draining()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._is_busy() and loop.time() < end:
            await self._wait_for_runs(end - loop.time())
        end = loop.time() + SETTLE_SECONDS
        while self._is_busy() and loop.time() < end:
            for run in self.engine.runs:
                run.stop(StopCause.SHUTDOWN)
            await self._wait_for_runs(end - loop.time())
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Something runs here, or is claimed and about to."""
        return len(self.engine.runs) > 0 or (self.dispatcher is not None and self.dispatcher.is_busy)

    async def _wait_for_runs(self, seconds: float) -> None:
        tasks = [run.task for run in self.engine.runs if run.task is not None]
        if self.dispatcher is not None and self.dispatcher.is_busy:
            seconds = min(seconds, CLAIM_POLL_SECONDS)
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, seconds))
        else:
            await asyncio.sleep(max(0.0, min(seconds, CLAIM_POLL_SECONDS)))
