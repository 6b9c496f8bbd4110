"""How a process that runs agents is told what to run: a line of JSON, and one line with the seconds it took."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from benchmarks.agent_shapes import ANSWERED

Run = Callable[[str], Awaitable[str]]


async def serve(run: Run) -> None:
    """`run`: one of this shape, from its beginning to its answer. Ends with the input."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        wanted = json.loads(line)
        seconds = await _timed(run, wanted["shape"], wanted["level"], wanted["count"])
        print(seconds, flush=True)


async def _timed(run: Run, shape: str, level: int, count: int) -> float:
    left = count

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if (said := await run(shape)) != ANSWERED:
                raise ValueError(f"{shape} ended with {said!r}")

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(level):
            group.create_task(lane())
    return time.perf_counter() - begin
