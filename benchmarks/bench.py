"""One run: everything started, measured in turns, checked and stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load, store
from benchmarks.contenders import Contender, Echo, Naive, Placet
from benchmarks.plan import ECHO, NAIVE, PLACET, POLICIED, PRELOADED, Case, Plan, Window
from benchmarks.policies import admit_policies
from benchmarks.preload import preload
from benchmarks.processes import busy_seconds, cpu_seconds
from placet_server.embedded.server import EmbeddedPostgres

Key = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Measured:
    """`windows` in the order of time, each with its repetition. `h2load` is its rate ÷ ours for the echo, by level."""

    windows: list[tuple[int, Window]] = field(default_factory=list)
    h2load: dict[int, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    postgres: dict[str, str] = field(default_factory=dict)
    fdatasync_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class _Sample:
    server: float
    postgres: float
    busy: float
    flushes: tuple[float, int] | None


class Bench:
    """`folder` is on the disk to measure; it may be deleted afterwards."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._contenders: dict[Key, Contender] = {}
        self._postgres: EmbeddedPostgres
        self._binary: Path
        self._measured = Measured()

    def run(self) -> Measured:
        """Raises Unfit, StartFailed, LoadFailed."""
        load.require_tools()
        measured = self._measured
        self._binary = load.build(self._folder)
        with ExitStack() as stack:
            self._postgres = store.start(self._folder, self._plan.programs)
            stack.callback(self._postgres.stop)
            measured.postgres = asyncio.run(store.describe(self._postgres.dsn))
            measured.fdatasync_ms = store.fdatasync_ms(self._folder)
            for key in self._keys():
                self._contenders[key] = self._started(stack, *key)
            for repetition in range(self._plan.repetitions):
                self._repeat(repetition)
            if self._plan.cross_check:
                self._cross_check()
            for contender in self._contenders.values():
                measured.problems += asyncio.run(contender.problems())
        return measured

    def _keys(self) -> Iterator[Key]:
        for processes in self._plan.process_counts:
            for kind in self._plan.kinds:
                yield kind, processes

    def _started(self, stack: ExitStack, kind: str, processes: int) -> Contender:
        name = f"{kind}_{processes}"
        say(f"starting {name}")
        make = {ECHO: Echo, NAIVE: Naive, PLACET: Placet, PRELOADED: Placet, POLICIED: Placet}[kind]
        dsn = ""
        if kind != ECHO:
            dsn = asyncio.run(store.create_database(self._postgres.dsn, name, migrated=kind != NAIVE))
        if kind == NAIVE:
            asyncio.run(store.create_naive_tables(dsn))
        contender = make(processes=processes, folder=self._folder, name=name, dsn=dsn)
        stack.callback(contender.stop)
        contender.start()
        if kind == POLICIED and isinstance(contender, Placet):
            with contender.client() as client:
                admit_policies(client, self._plan.policy_count)
            # Putting policies in force is an action, too.
            contender.rows_before = 1
        # Everything that happens only once happens before anything is measured.
        first = dataclasses.replace(self._plan, warmup_seconds=0.1, measured_seconds=0.1)
        self._window(contender, Case(kind=kind, processes=processes, level=processes), first)
        if kind == PRELOADED:
            say(f"filling {name} with {self._plan.preload_count} actions")
            asyncio.run(preload(dsn, self._plan.preload_count))
            contender.rows_before = self._plan.preload_count
        return contender

    def _repeat(self, repetition: int) -> None:
        plan = self._plan
        for level in plan.levels:
            for processes in plan.process_counts:
                for kind in plan.turn(repetition):
                    case = Case(kind=kind, processes=processes, level=level)
                    window = self._window(self._contenders[kind, processes], case, plan)
                    self._measured.windows.append((repetition, window))
                    say(
                        f"{repetition + 1}/{plan.repetitions} {kind:9} ×{processes} c{level:<3} "
                        f"{window.calls_per_second:7.0f}/s  p50 {window.p50_ms:6.2f} ms  p99 {window.p99_ms:6.2f} ms"
                    )

    def _window(self, contender: Contender, case: Case, plan: Plan) -> Window:
        postgres = self._postgres.process_ids

        def sample() -> _Sample:
            used = cpu_seconds(contender.pids), cpu_seconds(postgres)
            return _Sample(*used, busy_seconds(), contender.flushes())

        begin, end, report = load.Load(self._binary, contender, case, plan).run(sample)
        statuses: dict[str, int] = report["statuses"]
        contender.calls_made += sum(statuses.values())
        failed = {status: count for status, count in statuses.items() if status != "0"}
        if failed:
            self._measured.problems.append(f"{contender.name} c{case.level}: statuses {failed}")
        calls = max(report["calls"], 1)
        client_cpu = report["cpu_seconds"] / max(sum(statuses.values()), 1)
        ours = end.server - begin.server + end.postgres - begin.postgres + client_cpu * calls
        return Window(
            case=case,
            calls_per_second=report["calls_per_second"],
            p50_ms=report["p50_ms"],
            p99_ms=report["p99_ms"],
            server_cpu_us=(end.server - begin.server) / calls * 1e6,
            postgres_cpu_us=(end.postgres - begin.postgres) / calls * 1e6,
            client_cpu_us=client_cpu * 1e6,
            flush_items=_mean_flush(begin, end),
            foreign_cores=max(0.0, end.busy - begin.busy - ours) / plan.measured_seconds,
            statuses=statuses,
        )

    def _cross_check(self) -> None:
        processes = self._plan.process_counts[0]
        echo = self._contenders[ECHO, processes]
        for level in self._plan.levels:
            case = Case(kind=ECHO, processes=processes, level=level)
            ratios = []
            for _ in range(self._plan.repetitions):
                ours = self._window(echo, case, self._plan).calls_per_second
                ratios.append(load.h2load_rate(echo, case, self._plan, self._folder) / ours)
            self._measured.h2load[level] = statistics.median(ratios)
            say(f"echo c{level}: h2load ÷ ours {self._measured.h2load[level]:.2f}")


def _mean_flush(begin: _Sample, end: _Sample) -> float | None:
    if begin.flushes is None or end.flushes is None:
        return None
    count = end.flushes[1] - begin.flushes[1]
    return (end.flushes[0] - begin.flushes[0]) / count if count else None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
