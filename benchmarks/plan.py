"""What a run measures, and how long."""

from __future__ import annotations

from dataclasses import dataclass

# Also the order within a repetition, turned by one from each repetition to the next.
ECHO, PLACET, NAIVE, PRELOADED, POLICIED = "echo", "placet", "naive", "preloaded", "policied"
CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`levels` are calls in flight, `process_counts` servers that share a port."""

    kinds: tuple[str, ...] = (ECHO, PLACET, NAIVE)
    levels: tuple[int, ...] = (1, 16, 64, 256)
    process_counts: tuple[int, ...] = (1, 2)
    repetitions: int = 3
    warmup_seconds: float = 1.0
    measured_seconds: float = 2.0
    preload_count: int = 0
    policy_count: int = 0
    programs: str = "auto"
    cross_check: bool = True

    def turn(self, repetition: int) -> tuple[str, ...]:
        at = repetition % len(self.kinds)
        return self.kinds[at:] + self.kinds[:at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one number belongs to."""

    kind: str
    processes: int
    level: int

    @property
    def connections(self) -> int:
        return min(CONNECTIONS, self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One measured time. CPU in microseconds per call; `flush_items` is the mean of the servers that tell,
    `foreign_cores` what the rest of the machine used."""

    case: Case
    calls_per_second: float
    p50_ms: float
    p99_ms: float
    server_cpu_us: float
    postgres_cpu_us: float
    client_cpu_us: float
    flush_items: float | None
    foreign_cores: float
    statuses: dict[str, int]
