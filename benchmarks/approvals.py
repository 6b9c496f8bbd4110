"""A hundred thousand pending approvals: how long a page takes, and how much memory a server needs to tell all of them.
And before that, how long after a yes an action begins.

    python benchmarks/approvals.py [--json] [--count 100000]

docs/performance.md says what is measured. Exits with 1 if a page takes 20 ms or more at the 95th percentile, or a start
250 ms, if the server's memory grows with what it tells, or if one approval is told twice or not at all.
"""

from __future__ import annotations

import os
import sys

# The folder of this file has a `queue` that is not Python's.
sys.path.pop(0)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import noop_app, store
from benchmarks.contenders import Placet
from benchmarks.preload import fill_approvals
from benchmarks.processes import StartFailed, resident_bytes
from placet import Client
from placet.aio import AsyncClient
from placet_server.embedded.error import EmbeddedError

PAGE_SIZE = 50
PAGES = 200
YESES = 100
START_MS_MAX = 250.0
PAGE_MS_MAX = 20.0
# What a server keeps of its own, whatever it tells: caches, and what its allocator does not give back.
GROWN_MB_MAX = 48.0
QUESTION = {"title": "Which account?", "to": "user:agent-1", "choices": ["A", "B"], "ttl": "2d"}


def measure(folder: Path, programs: str, count: int) -> dict[str, Any]:
    """Raises StartFailed, EmbeddedError."""
    with ExitStack() as stack:
        postgres = store.start(folder, programs)
        stack.callback(postgres.stop)
        dsn = asyncio.run(store.create_database(postgres.dsn, "approvals"))
        starts = _started(folder, asyncio.run(store.create_database(postgres.dsn, "starts")))
        server = Placet(processes=1, folder=folder, name="approvals", dsn=dsn)
        stack.callback(server.stop)
        server.start()
        with server.client() as client:
            client.submit("human.input", QUESTION)
            asyncio.run(fill_approvals(dsn, count - 1))
            pages = {name: _paged(client, eligible_only=name == "mine") for name in ("all", "mine")}
            _watched(client, min(count, 5_000))
            before = resident_bytes(server.pids)
            begin = time.perf_counter()
            told = _watched(client, count)
            seconds = time.perf_counter() - begin
        grown = (resident_bytes(server.pids) - before) / 2**20
    report = {
        "starts": starts,
        "count": count,
        "pages": pages,
        "told": len(told),
        "told_per_second": round(count / seconds),
        "memory_grown_mb": round(grown, 1),
    }
    return report | {"problems": _problems(report)}


def _started(folder: Path, dsn: str) -> dict[str, float]:
    """Milliseconds from the vote that completes a rule to the start of its action, by the store's clock; all votes are
    cast at once, through two servers.
    """
    server = Placet(processes=2, folder=folder, name="starts", dsn=dsn)
    try:
        server.start()
        with server.client() as client:
            ids = [client.submit(noop_app.APPROVED, {"number": n}).action.action_id for n in range(YESES)]
            asyncio.run(_decide(server))
            for action_id in ids:
                client.wait(action_id)
    finally:
        server.stop()
    took = sorted(asyncio.run(_spans(dsn)))
    return {
        "begun": len(took),
        "median_ms": round(statistics.median(took), 1),
        "p95_ms": round(took[int(len(took) * 0.95)], 1),
        "slowest_ms": round(took[-1], 1),
    }


async def _decide(server: Placet) -> None:
    address = f"127.0.0.1:{server.port.number}"
    async with AsyncExitStack() as stack:
        # Connections are spread over the servers, calls of one connection are not.
        clients = [
            await stack.enter_async_context(AsyncClient.connect(address, token=server.voter_token))
            for _ in range(8)
        ]
        listed = [each async for each in clients[0].approvals()]
        shown = [await clients[0].approval(each.approval_id) for each in listed]
        await asyncio.gather(
            *(
                clients[n % len(clients)].decide(each.approval_id, "approve", digest=each.digest)
                for n, each in enumerate(shown)
            )
        )


async def _spans(dsn: str) -> list[float]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            """
            select extract(epoch from s.create_time - d.create_time)::float * 1000 as ms
            from events as d join events as s on s.tenant = d.tenant and s.action_id = d.action_id
            where d.type = 'approval_decided' and s.type = 'attempt_started'
            """
        )
    finally:
        await connection.close()
    return [row["ms"] for row in rows]


def _paged(client: Client, *, eligible_only: bool) -> dict[str, float]:
    """Milliseconds from one page to the next, as a client has them."""
    took: list[float] = []
    pages = client.approvals(eligible_only=eligible_only, page_size=PAGE_SIZE, timeout=30.0)
    begin = time.perf_counter()
    for number, _ in enumerate(pages, start=1):
        if number % PAGE_SIZE == 1:
            took.append((time.perf_counter() - begin) * 1000)
        if number == PAGE_SIZE * PAGES:
            break
        if number % PAGE_SIZE == 0:
            begin = time.perf_counter()
    took.sort()
    return {
        "found": number,
        "median_ms": round(statistics.median(took), 1),
        "p95_ms": round(took[int(len(took) * 0.95)], 1),
        "slowest_ms": round(took[-1], 1),
    }


def _watched(client: Client, count: int) -> set[str]:
    """So many, from the first that happened on; each must come once."""
    seen: set[str] = set()
    with client.watch_approvals(timeout=600.0) as watched:
        for number, each in enumerate(watched, start=1):
            seen.add(each.approval.approval_id)
            if number == count:
                break
    return seen


def _problems(report: dict[str, Any]) -> list[str]:
    problems = [
        f"a page of {name} takes {pages['p95_ms']} ms"
        for name, pages in report["pages"].items()
        if pages["p95_ms"] >= PAGE_MS_MAX
    ]
    starts = report["starts"]
    if starts["begun"] != YESES or starts["p95_ms"] >= START_MS_MAX:
        problems.append(f"{starts['begun']} of {YESES} have begun, in {starts['p95_ms']} ms")
    if report["told"] != report["count"]:
        problems.append(f"{report['told']} of {report['count']} were told")
    if report["memory_grown_mb"] > GROWN_MB_MAX:
        problems.append(f"{report['memory_grown_mb']} MB more after telling all of them")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--count", type=int, default=100_000, help="pending approvals")
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as folder:
            # The account of Postgres reads through it.
            Path(folder).chmod(0o755)
            report = measure(Path(folder), arguments.programs, arguments.count)
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 2
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(f"{name}: {value}" for name, value in report.items()))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
