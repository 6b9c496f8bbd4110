"""Work accepted by SubmitBatch against bare unary calls: stored into a paused queue, so that nothing runs meanwhile."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path
from typing import Any

from benchmarks import load, store
from benchmarks.bench import say
from benchmarks.contenders import Contender, Echo, Placet, Request, submissions
from benchmarks.load import LoadFailed
from benchmarks.plan import ECHO, PLACET, Case, Plan
from placet_server.embedded.server import EmbeddedPostgres

ITEMS, CALLS = 100, 4
# Where one bare server does best.
ECHO_CALLS = 64
QUEUE = "paused"


def measure_acceptance(postgres: EmbeddedPostgres, folder: Path, repetitions: int) -> dict[str, Any]:
    """Items per second by SubmitBatch ÷ calls per second of the echo, in turns.

    Raises Unfit, StartFailed, LoadFailed.
    """
    binary = load.build(folder)
    dsn = asyncio.run(store.create_database(postgres.dsn, "acceptance"))
    echo = Echo(processes=1, folder=folder, name="acceptance_echo")
    ours = _Acceptance(processes=1, folder=folder, name="acceptance", dsn=dsn)
    plan = Plan()
    rates: dict[str, list[float]] = {ECHO: [], PLACET: []}
    try:
        for contender in (echo, ours):
            contender.start()
        with ours.client() as client:
            client.pause_queue(QUEUE)
        for _ in range(repetitions):
            rates[ECHO].append(_rate(binary, echo, ECHO, ECHO_CALLS, plan))
            rates[PLACET].append(_rate(binary, ours, PLACET, CALLS, plan) * ITEMS)
            say(f"accepted {rates[PLACET][-1]:.0f}/s by {ITEMS} × {CALLS}, echo {rates[ECHO][-1]:.0f}/s")
    finally:
        echo.stop()
        ours.stop()
    problems = asyncio.run(ours.problems())
    if problems:
        raise LoadFailed(problems[0])
    ratios = [a / b for a, b in zip(rates[PLACET], rates[ECHO], strict=True)]
    return {
        "items_per_second": round(statistics.median(rates[PLACET])),
        "echo_per_second": round(statistics.median(rates[ECHO])),
        "ratio_to_echo": round(statistics.median(ratios), 3),
    }


def _rate(binary: Path, contender: Contender, kind: str, level: int, plan: Plan) -> float:
    case = Case(kind=kind, processes=1, level=level)
    _, _, report = load.Load(binary, contender, case, plan).run(lambda: None)
    if set(report["statuses"]) != {"0"}:
        raise LoadFailed(f"{contender.name}: statuses {report['statuses']}")
    contender.calls_made += sum(report["statuses"].values())
    rate: float = report["calls_per_second"]
    return rate


class _Acceptance(Placet):
    def request(self) -> Request:
        message, offsets = submissions(ITEMS, QUEUE)
        return Request(
            path="/placet.v1.RuntimeService/SubmitBatch",
            message=message,
            key_offsets=offsets,
            authorization_file=self._authorization_file,
        )

    async def problems(self) -> list[str]:
        expected = {"QUEUED": self.calls_made * ITEMS}
        actual = await store.count_states(self.dsn, "actions")
        return [] if expected == actual else [f"{self.name}: expected {expected}, the store has {actual}"]
