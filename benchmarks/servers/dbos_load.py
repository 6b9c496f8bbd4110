"""DBOS in its own process: durable workflows with one step and a key each, from so many threads.

dbos_load.py DSN CALLS WARMUP_SECONDS MEASURED_SECONDS     prints calls per second
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import dbos

from benchmarks.noop_app import INPUT


def main(dsn: str, calls: int, warmup_seconds: float, measured_seconds: float) -> None:
    dbos.DBOS(config={"name": "benchmark", "system_database_url": dsn, "log_level": "ERROR"})

    def step(order: dict[str, Any]) -> dict[str, Any]:
        return {"order": order["order"]}

    durable_step = dbos.DBOS.step()(step)

    def workflow(order: dict[str, Any]) -> Any:
        return durable_step(order)

    durable = dbos.DBOS.workflow()(workflow)
    dbos.DBOS.launch()
    begin = time.monotonic() + warmup_seconds
    end = begin + measured_seconds
    counts = [0] * calls

    def lane(number: int) -> None:
        while time.monotonic() < end:
            with dbos.SetWorkflowID(uuid.uuid4().hex):
                durable(INPUT)
            counts[number] += begin <= time.monotonic() < end

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts) / measured_seconds, flush=True)
    dbos.DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
