"""What the blocking client has done beside the main thread.

The handler of a signal runs in the main thread, between any two steps of it, and Ctrl-C raises KeyboardInterrupt there.
Raised in the middle of gRPC it leaves a lock taken that the channel's own thread needs, and then no call of the channel
ends any more, nor does its close. So the main thread never goes into gRPC: another one does that for it, and it waits
on a lock that nobody else needs. Any other thread does its work itself, as nothing is raised there.
"""

from __future__ import annotations

import threading
import weakref
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

DoneT = TypeVar("DoneT")

# Not every system lets a signal end a wait for a lock: there it is looked after so often.
LOOK_SECONDS = 0.2


class Aside:
    """Threads that work for the main thread, one thing at a time each: as many as it has ever left to themselves, and
    one more."""

    def __init__(self) -> None:
        self._idle = _Idle()
        self._finish = weakref.finalize(self, self._idle.close)
        self._finish.atexit = False

    def do(self, work: Callable[[], DoneT]) -> DoneT:
        """What `work` returns or raises. Whoever is interrupted while it waits leaves it to its end."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        job = _Job(work)
        self._begin(job)
        while not job.done.acquire(timeout=LOOK_SECONDS):
            pass
        return job.result()

    def begin(self, work: Callable[[], object]) -> None:
        """The same without waiting for it, and without its result."""
        if threading.current_thread() is not threading.main_thread():
            work()
        else:
            self._begin(_Job(work))

    def close(self) -> None:
        """Ends the threads, each once it has nothing to do."""
        self._finish()

    def _begin(self, job: _Job[Any]) -> None:
        try:
            inbox = self._idle.inboxes.pop()
        except IndexError:
            inbox = SimpleQueue()
            # `Thread.start` has locks of its own that an interruption would leave taken.
            start_new_thread(_serve, (inbox, self._idle))
        inbox.put(job)


class _Idle:
    """The threads without work, and all that they know of whom they work for."""

    def __init__(self) -> None:
        self.inboxes: list[SimpleQueue[_Job[Any] | None]] = []
        self._is_closed = False

    def add(self, inbox: SimpleQueue[_Job[Any] | None]) -> None:
        self.inboxes.append(inbox)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        while self.inboxes:
            self.inboxes.pop().put(None)


class _Job(Generic[DoneT]):
    def __init__(self, work: Callable[[], DoneT]) -> None:
        self._context = copy_context()
        self._work = work
        self._returned: list[DoneT] = []
        self._raised: BaseException | None = None
        self.done = allocate_lock()
        self.done.acquire()

    def run(self) -> None:
        try:
            self._returned.append(self._context.run(self._work))
        except BaseException as error:
            self._raised = error

    def result(self) -> DoneT:
        if self._raised is None:
            return self._returned.pop()
        error, self._raised = self._raised, None
        try:
            raise error
        finally:
            # Otherwise it would live until the collector looks.
            del error


def _serve(inbox: SimpleQueue[_Job[Any] | None], idle: _Idle) -> None:
    """One thread, to the None in its inbox."""
    while (job := inbox.get()) is not None:
        job.run()
        done = job.done
        # What it has worked on must not live until the next one comes.
        del job
        idle.add(inbox)
        done.release()
