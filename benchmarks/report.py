"""From windows to ratios: each within its repetition, then the median."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from benchmarks.bench import Measured
from benchmarks.plan import ECHO, NAIVE, PLACET, POLICIED, PRELOADED, Case, Plan, Window

Ratios = dict[str, dict[str, float]]
PACKAGES = ("asyncpg", "grpcio", "orjson", "protobuf", "protovalidate", "uvloop")
FIGURES = (
    "calls_per_second",
    "p50_ms",
    "p99_ms",
    "server_cpu_us",
    "postgres_cpu_us",
    "client_cpu_us",
    "flush_items",
    "foreign_cores",
)
# Above, somebody else used so much of the machine that ratios say more about that than about us.
FOREIGN_CORES_MAX = 0.3


def report_of(plan: Plan, measured: Measured) -> dict[str, Any]:
    """The document that `--json` prints. Ratios: by process count, then by calls in flight."""
    table = _Table(plan, measured)
    return {
        "succeeded": not measured.problems,
        "problems": measured.problems,
        # Placet's rate with so many processes ÷ that of one bare echo process.
        "ratio_to_echo": table.ratios(PLACET, lambda case: Case(kind=ECHO, processes=1, level=case.level)),
        "ratio_to_echo_of_as_many": table.ratios(PLACET, lambda case: _like(case, ECHO)),
        "ratio_to_naive": table.ratios(PLACET, lambda case: _like(case, NAIVE)),
        "ratio_to_one_process": table.ratios(
            PLACET, lambda case: Case(kind=PLACET, processes=1, level=case.level)
        ),
        "ratio_policied": table.ratios(POLICIED, lambda case: _like(case, PLACET)),
        "ratio_preloaded": table.ratios(PRELOADED, lambda case: _like(case, PLACET)),
        "h2load_to_loadgen": {str(level): round(ratio, 3) for level, ratio in measured.h2load.items()},
        "results": table.rows(),
        "quiet": all(window.foreign_cores <= FOREIGN_CORES_MAX for _, window in measured.windows),
        "environment": environment(plan, measured),
    }


class _Table:
    def __init__(self, plan: Plan, measured: Measured) -> None:
        self._plan = plan
        self._found: dict[tuple[int, Case], Window] = {
            (repetition, window.case): window for repetition, window in measured.windows
        }

    def ratios(self, kind: str, reference: Callable[[Case], Case]) -> Ratios:
        found: Ratios = {}
        for case in self._cases(kind):
            values = [
                self._found[repetition, case].calls_per_second / max(other.calls_per_second, 1e-9)
                for repetition in range(self._plan.repetitions)
                if (other := self._found.get((repetition, reference(case)))) is not None
            ]
            if values and reference(case) != case:
                by_level = found.setdefault(str(case.processes), {})
                by_level[str(case.level)] = round(statistics.median(values), 3)
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(case) for kind in self._plan.kinds for case in self._cases(kind)]

    def _row(self, case: Case) -> dict[str, Any]:
        windows = [self._found[repetition, case] for repetition in range(self._plan.repetitions)]
        row: dict[str, Any] = {"kind": case.kind, "processes": case.processes, "calls_in_flight": case.level}
        for figure in FIGURES:
            values = [value for window in windows if (value := getattr(window, figure)) is not None]
            row[figure] = _rounded(statistics.median(values)) if values else None
        rates = [window.calls_per_second for window in windows]
        row["calls_per_second_min"], row["calls_per_second_max"] = _rounded(min(rates)), _rounded(max(rates))
        row["calls_not_ok"] = sum(
            count for window in windows for status, count in window.statuses.items() if status != "0"
        )
        return row

    def _cases(self, kind: str) -> Iterable[Case]:
        if kind not in self._plan.kinds:
            return
        for processes in self._plan.process_counts:
            for level in self._plan.levels:
                yield Case(kind=kind, processes=processes, level=level)


def environment(plan: Plan, measured: Measured) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "postgres": measured.postgres,
        "fdatasync_ms": round(measured.fdatasync_ms, 4),
        "load_average": os.getloadavg(),
        "plan": {
            "repetitions": plan.repetitions,
            "warmup_seconds": plan.warmup_seconds,
            "measured_seconds": plan.measured_seconds,
            "preload_count": plan.preload_count,
            "policy_count": plan.policy_count,
        },
    }


def text_of(report: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{'server':9}    calls   calls/s     p50     p99 ms | CPU µs per call: server  postgres  client |"
        " flush | others, cores",
    ]
    for row in report["results"]:
        flush = " " * 5 if row["flush_items"] is None else f"{row['flush_items']:5.1f}"
        lines.append(
            f"{row['kind']:9} ×{row['processes']} {row['calls_in_flight']:6}  {row['calls_per_second']:8.0f}"
            f" {row['p50_ms']:7.2f} {row['p99_ms']:7.2f}    |                  {row['server_cpu_us']:6.0f}"
            f"    {row['postgres_cpu_us']:6.0f}  {row['client_cpu_us']:6.0f} | {flush} | {row['foreign_cores']:.2f}"
        )
    for name in [key for key in report if key.startswith("ratio_")]:
        for processes, by_level in report[name].items():
            ratios = "  ".join(f"c{level} {ratio:.2f}" for level, ratio in by_level.items())
            lines.append(f"{name} ×{processes}: {ratios}")
    lines.append(f"h2load_to_loadgen (echo): {report['h2load_to_loadgen']}")
    lines.append(
        f"fdatasync {report['environment']['fdatasync_ms']} ms, load {report['environment']['load_average']}"
    )
    if not report["quiet"]:
        lines.append(
            "The machine was busy with other things: take neither rates nor ratios for Placet's own."
        )
    lines += [f"PROBLEM: {problem}" for problem in report["problems"]]
    return "\n".join(lines)


def _like(case: Case, kind: str) -> Case:
    return Case(kind=kind, processes=case.processes, level=case.level)


def _rounded(value: float) -> float:
    return round(value, 3)
