"""Empty a filled queue, and tell how fast it became empty."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

from benchmarks import noop_app, store
from benchmarks.contenders import HERE, Placet
from benchmarks.preload import fill_queue
from benchmarks.processes import StartFailed, cpu_seconds

DRAIN_SECONDS_MAX = 900.0
LOOK_SECONDS = 0.2
# Both ends belong to starting and stopping.
_EDGE = 0.05


class Drain:
    """`looks` are pairs of seconds and how much was done by then."""

    def __init__(
        self, *, kind: str, name: str, dsn: str, count: int, folder: Path, postgres: Callable[[], list[int]]
    ) -> None:
        self.kind, self.name, self.dsn, self.count, self.folder = kind, name, dsn, count, folder
        self.postgres = postgres
        self.worker_cpu_us = self.postgres_cpu_us = 0.0
        self.looks: list[tuple[float, int]] = []
        self.problems: list[str] = []

    def run(self) -> None:
        raise NotImplementedError

    @property
    def rate(self) -> float:
        """Per second, between the first 5 % and the last."""
        begin, end = self._when(self.count * _EDGE), self._when(self.count * (1 - _EDGE))
        return self.count * (1 - 2 * _EDGE) / max(end - begin, 1e-9)

    def ends(self, seconds: float) -> tuple[float, float]:
        """The rates of the first seconds and of the last ones, without the edges."""
        begin, end = self._when(self.count * _EDGE), self._when(self.count * (1 - _EDGE))
        first = self._done(begin + seconds) - self._done(begin)
        last = self._done(end) - self._done(end - seconds)
        return first / seconds, last / seconds

    def _charge(self, worker_seconds: float, postgres_seconds: float) -> None:
        self.worker_cpu_us = worker_seconds / self.count * 1e6
        self.postgres_cpu_us = postgres_seconds / self.count * 1e6

    def _when(self, done: float) -> float:
        """Between two looks it went evenly."""
        before = self.looks[0]
        for look in self.looks:
            if look[1] >= done:
                share = (done - before[1]) / max(look[1] - before[1], 1)
                return before[0] + share * (look[0] - before[0])
            before = look
        return before[0]

    def _done(self, seconds: float) -> float:
        before = self.looks[0]
        for look in self.looks:
            if look[0] >= seconds:
                share = (seconds - before[0]) / max(look[0] - before[0], 1e-9)
                return before[1] + share * (look[1] - before[1])
            before = look
        return before[1]


class WorkerDrain(Drain):
    """One of the others: its program fills, works and tells what it has done."""

    def run(self) -> None:
        self._program("fill")
        postgres, worker = cpu_seconds(self.postgres()), _children_cpu_seconds()
        told = self._program("work")
        self._charge(_children_cpu_seconds() - worker, cpu_seconds(self.postgres()) - postgres)
        for line in told.splitlines():
            seconds, done = line.split()
            self.looks.append((float(seconds), int(done)))
        if self.looks[-1][1] != self.count:
            self.problems.append(f"{self.name}: {self.looks[-1][1]} ran, expected {self.count}")

    def _program(self, verb: str) -> str:
        command = [
            sys.executable,
            str(HERE / f"servers/{self.kind}_worker.py"),
            verb,
            self.dsn,
            str(self.count),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRAIN_SECONDS_MAX)
        if done.returncode != 0:
            raise StartFailed(f"{self.name}: {done.stderr[-2000:]}")
        return done.stdout


class OursDrain(Drain):
    """The whole server, as it comes; what it has settled is read from its metrics."""

    def run(self) -> None:
        first = _QueueServer(processes=1, folder=self.folder, name=f"{self.name}_model", dsn=self.dsn)
        try:
            first.start()
            with first.client() as client:
                # The row whose copies are what is measured.
                client.submit(noop_app.CAPABILITY, noop_app.INPUT, delay=24 * 3600)
        finally:
            first.stop()
        asyncio.run(fill_queue(self.dsn, self.count))
        server = _QueueServer(processes=1, folder=self.folder, name=self.name, dsn=self.dsn)
        try:
            server.start()
            self._watch(server)
        finally:
            server.stop()
        states = asyncio.run(store.count_states(self.dsn, "actions"))
        if states != {store.SUCCEEDED: self.count, "QUEUED": 1}:
            self.problems.append(
                f"{self.name}: expected {self.count} settled and one delayed, found {states}"
            )
        self.problems += asyncio.run(self._attempts())

    def _watch(self, server: _QueueServer) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        postgres, worker = cpu_seconds(self.postgres()), cpu_seconds(server.pids)
        while not self.looks or self.looks[-1][1] < self.count:
            self.looks.append((time.monotonic(), server.settled()))
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name}: not empty after {DRAIN_SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)
        self._charge(cpu_seconds(server.pids) - worker, cpu_seconds(self.postgres()) - postgres)

    async def _attempts(self) -> list[str]:
        connection = await asyncpg.connect(self.dsn)
        try:
            again = await connection.fetchval("select count(*) from actions where attempt > 1")
        finally:
            await connection.close()
        return [f"{self.name}: {again} ran more than once"] if again else []


class _QueueServer(Placet):
    def settled(self) -> int:
        return int(self.metrics().get('placet_action_seconds_count{outcome="SUCCEEDED"}', 0.0))


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
