"""What runs in this process, and who still waits for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from placet.app import Tool
from placet_server.core.execution.child import Holding
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.timers import Timer, TimerWheel
from placet_server.model.action import Action, OnCallerGone
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.lifecycle import TERMINAL


class Work(NamedTuple):
    """What an attempt needs beside the row.

    `deadline_cause` says what it means when `timeout_seconds` are over.
    """

    caller: Caller
    capability: Capability
    tool: Tool
    input_json: str
    timeout_seconds: float
    deadline_cause: StopCause
    on_admitted: Callable[[str], None] | None = None
    trace: Mapping[str, str] = MappingProxyType({})


class Patience(NamedTuple):
    """Until when a caller waits, by the loop's clock; None: as long as the connection lives."""

    until: float | None

    def left_seconds(self) -> float | None:
        return None if self.until is None else max(0.0, self.until - asyncio.get_running_loop().time())

    def is_over(self) -> bool:
        return self.until is not None and asyncio.get_running_loop().time() >= self.until


class Run:
    """One attempt in this process, from before it is acquired until its verdict is durable.

    Waiters get the action as the attempt left it, None if it could not be acquired, or the error that
    acquiring it met. Waiting never owns the run: a waiter that goes away leaves it alone, but for what
    `caller_gone` says.

    `holdings`: what it gives back while it waits for children."""

    # How every run begins: on the class, as most of them never change.
    action: Action | None = None
    task: asyncio.Task[Any] | None = None
    stop_cause: StopCause | None = None
    holdings: tuple[Holding, ...] = ()
    handler_is_cancellable = False
    handler_was_entered = False
    handler_has_ended = False
    _cancelled: asyncio.Event | None = None
    _is_overdue = False
    _callers = 0
    _grace: Timer | None = None
    _answer: tuple[Action | None, Exception | None] | None = None

    def __init__(
        self,
        work: Work,
        action_id: str,
        *,
        on_caller_gone: OnCallerGone,
        timers: TimerWheel,
        grace_seconds: float,
    ) -> None:
        self.work = work
        self.action_id = action_id
        self.begin = asyncio.get_running_loop().time()
        self._on_caller_gone = on_caller_gone
        self._timers = timers
        self._grace_seconds = grace_seconds
        self._waiters: set[asyncio.Future[Action | None]] = set()

    @property
    def is_finished(self) -> bool:
        """Its verdict is durable, or nothing more will be known of it here."""
        return self._answer is not None

    @property
    def has_ended_its_action(self) -> bool:
        """Its verdict is durable, and no further attempt follows."""
        action = None if self._answer is None else self._answer[0]
        return action is not None and action.state in TERMINAL

    @property
    def cancelled(self) -> asyncio.Event:
        """Set once the handler is asked to stop. Made when somebody wants to wait for it."""
        if self._cancelled is None:
            self._cancelled = asyncio.Event()
            if self.stop_cause is not None:
                self._cancelled.set()
        return self._cancelled

    def is_wanted(self) -> bool:
        """Its handler may go on."""
        return not self.handler_has_ended and self.stop_cause is None

    def stop(self, cause: StopCause) -> None:
        """Ask the handler to stop, once; the first cause counts."""
        if self.stop_cause is not None or self._answer is not None:
            return
        self.stop_cause = cause
        if self._cancelled is not None:
            self._cancelled.set()
        if self.handler_is_cancellable and self.task is not None:
            self.task.cancel()

    def cut_off(self) -> None:
        """Its handler waits for what nobody here can hurry, and begins again once that has come: it ends where it
        stands, once it had its turn to end by itself.
        """
        asyncio.get_running_loop().call_soon(self._cut_off)

    def _cut_off(self) -> None:
        if self.handler_is_cancellable and self.task is not None:
            self.task.cancel()

    async def wait(self, patience: Patience) -> Action | None:
        """Waits as a caller. The answer; or the action as it is known, when the patience is over or once nobody is kept
        waiting.

        Raises what acquiring raised. If the call itself is lost, the run hears of it.
        """
        self.attach()
        if self._answer is None and not self._is_overdue:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            seconds = patience.left_seconds()
            timer = None if seconds is None else self._timers.call_later(seconds, self._expire, waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.caller_gone()
                raise
            except BaseException:
                self.detach()
                raise
            finally:
                self._waiters.discard(waiter)
                if timer is not None:
                    timer.cancel()
        self.detach()
        if self._answer is None:
            return self.action
        action, error = self._answer
        if error is not None:
            raise error
        return action

    def expire_waiters(self) -> None:
        """Whoever waits is told how it stands now."""
        for waiter in self._waiters:
            self._expire(waiter)

    def answer_within(self, seconds: float) -> None:
        """Nobody is kept waiting longer for a handler that does not stop: all are told how it stands."""
        self._timers.call_later(seconds, self._be_overdue)

    def finish(self, action: Action | None, error: Exception | None = None) -> None:
        self._answer = (action, error)
        if self._grace is not None:
            self._grace.cancel()
        self.expire_waiters()

    def attach(self) -> None:
        """A caller, or a watcher, is there (again)."""
        self._callers += 1
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def detach(self) -> None:
        """Somebody has his answer, or was only watching: that cancels nothing."""
        self._callers -= 1

    def caller_gone(self) -> None:
        """An attached caller's connection was lost, or the caller cancelled the call."""
        self._callers -= 1
        if self._callers > 0 or self._answer is not None or self._on_caller_gone is OnCallerGone.DETACH:
            return
        if self.work.capability.contract.effect == "READ":
            self.stop(StopCause.CANCELLED_BY_CALLER)
        elif self._grace is None:
            self._grace = self._timers.call_later(
                self._grace_seconds, self.stop, StopCause.CANCELLED_BY_CALLER
            )

    def _be_overdue(self) -> None:
        self._is_overdue = True
        self.expire_waiters()

    def _expire(self, waiter: asyncio.Future[Action | None]) -> None:
        if not waiter.done():
            waiter.set_result(None)


class Runs:
    """By action id: at most one run of an action in a process.

    `abandoned` are the leases of runs that ended by a fault after their handler was entered.
    """

    def __init__(self) -> None:
        self._wanted: Counter[str] = Counter()
        self._runs: dict[str, Run] = {}
        self.abandoned: set[str] = set()

    def add(self, run: Run) -> None:
        assert run.action_id not in self._runs
        self._runs[run.action_id] = run

    def remove(self, run: Run) -> None:
        if self._runs.get(run.action_id) is run:
            del self._runs[run.action_id]

    def get(self, action_id: str) -> Run | None:
        return self._runs.get(action_id)

    @contextmanager
    def wanting(self, action_id: str) -> Iterator[None]:
        """Somebody here wants it to go on, wherever it runs."""
        self._wanted[action_id] += 1
        try:
            yield
        finally:
            self._wanted[action_id] -= 1
            if not self._wanted[action_id]:
                del self._wanted[action_id]

    def is_wanted(self, action_id: str) -> bool:
        return action_id in self._wanted

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def __len__(self) -> int:
        return len(self._runs)
