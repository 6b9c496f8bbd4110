"""What execution needs, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from placet.supervisor import Supervisor
from placet_server.core.execution.begin import Rechecker
from placet_server.core.execution.child import ChildAdmitter
from placet_server.core.execution.handlers import HandlerTable
from placet_server.core.execution.lookups import Lookups
from placet_server.core.execution.runs import Run, Runs, Work
from placet_server.core.execution.slot import Slots
from placet_server.core.execution.threads import HandlerThreads
from placet_server.core.execution.timers import TimerWheel
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action, OnCallerGone


class Observer(Protocol):
    """Told of what telemetry counts. Must be quick and must not raise."""

    def settled(self, action: Action, seconds: float) -> None: ...

    def refused(self, reason: str) -> None: ...

    def claims(self, items: int) -> None:
        """Together, in one statement."""

    def claimed(self, queue: str, wait_seconds: float) -> None:
        """Since it was ready."""

    def reconciled(self, action: Action) -> None:
        """What was in doubt, as a lookup's answer left it."""


class Unobserved:
    """Nobody counts."""

    def settled(self, action: Action, seconds: float) -> None: ...

    def refused(self, reason: str) -> None: ...

    def claims(self, items: int) -> None: ...

    def claimed(self, queue: str, wait_seconds: float) -> None: ...

    def reconciled(self, action: Action) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """Seconds, but for `handler_threads_max`.

    `cancel_grace_seconds`: how long a caller waits for a handler that was asked to stop.
    `unowned_age_seconds`: how old a running row of this boot must be before it counts as forgotten if no
    run of it is in memory.
    `park_seconds`: how long what is COMPOSED waits in memory for a step that takes long."""

    reattach_grace_seconds: float = 10.0
    cancel_grace_seconds: float = 5.0
    unowned_age_seconds: float = 5.0
    handler_threads_max: int = 32
    park_seconds: float = 30.0


@dataclass(slots=True, kw_only=True)
class Engine:
    """Belongs to one event loop. `children`, `recheck`: set once the kernel is whole, as they need it.
    `traces_runs`: so what takes their steps looks where they belong.
    """

    journal: Journal
    handlers: HandlerTable
    settings: ExecutionSettings = field(default_factory=ExecutionSettings)
    supervisor: Supervisor = field(default_factory=Supervisor)
    runs: Runs = field(default_factory=Runs)
    timers: TimerWheel = field(default_factory=TimerWheel)
    threads: HandlerThreads = field(default_factory=lambda: HandlerThreads(32))
    lookups: Lookups = field(default_factory=Lookups)
    slots: Slots = field(default_factory=Slots)
    observer: Observer = field(default_factory=Unobserved)
    children: ChildAdmitter | None = None
    recheck: Rechecker | None = None
    traces_runs: bool = False

    def new_run(self, work: Work, action_id: str, on_caller_gone: OnCallerGone) -> Run:
        return Run(
            work,
            action_id,
            on_caller_gone=on_caller_gone,
            timers=self.timers,
            grace_seconds=self.settings.reattach_grace_seconds,
        )
