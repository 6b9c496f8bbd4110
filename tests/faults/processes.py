"""Real processes for fault tests: servers, and the provider that counts their effects. Blocking."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).parents[2]
PROVIDER_VARIABLE = "PLACET_SAMPLE_PROVIDER"
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.02
DONE_HERE = ("refunds", "charges", "messages")
# Long enough for heartbeats on a machine with more work than processors.
LEASE_SECONDS = 3.0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Poll until true; fails the test when time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(POLL_SECONDS)


async def until_so(is_so: Callable[[], Awaitable[bool]]) -> None:
    """What another process brings about, which tells nobody here: what it stores is looked at."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)


class Server:
    """One server process, from fork to end. Its paths and variables may be started again."""

    def __init__(self, pid: int, log: Path, token_file: Path) -> None:
        self.pid = pid
        self.log_file = log
        self.token_file = token_file
        self.target = ""
        self.health_target = ""
        self.boot_id = ""
        self.code: int | None = None
        self._moved = threading.Condition()

    @property
    def token(self) -> str:
        token: str = json.loads(self.token_file.read_text())["token"]
        return token

    @property
    def is_ready(self) -> bool:
        return bool(self.target)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def signal(self, number: int) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.ended()

    def ended(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        with self._moved:
            self._moved.wait_for(lambda: self.code is not None, seconds)
        assert self.code is not None, f"server {self.pid} goes on:\n{self.log()}"
        return self.code

    def until_ready(self, seconds: float = WAIT_SECONDS) -> Server:
        with self._moved:
            self._moved.wait_for(lambda: self.is_ready or self.code is not None, seconds)
        assert self.is_ready, f"server {self.pid} is not ready ({self.code}):\n{self.log()}"
        return self

    def report(self, report: dict[str, Any]) -> None:
        with self._moved:
            if "ready" in report:
                self.target, self.health_target = report["target"], report["health"]
                self.boot_id = report["boot_id"]
            else:
                self.code = report["code"]
            self._moved.notify_all()


class Healthy(Protocol):
    """Has a health port."""

    health_target: str


def health_of(server: Healthy, service: str) -> str:
    """As its health port says: SERVING or NOT_SERVING; "" when the port is closed."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.health_target, options) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            response = stub.Check(request, timeout=5)
        except grpc.RpcError:
            return ""
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


async def until_health(server: Healthy, service: str, expected: str) -> None:
    await asyncio.to_thread(
        wait_until, lambda: health_of(server, service) == expected, f"{service} {expected}"
    )


class Zygote:
    """The process that forks servers; see `zygote.py`. One for each process of tests."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._servers: dict[int, Server] = {}
        self._started: dict[int, threading.Event] = {}
        self._orders: list[Callable[[int], Server]] = []
        self._made: list[Server] = []
        self._lock = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="zygote", daemon=True)
        self._reader.start()

    def start(self, environment: Mapping[str, str], log: Path, token_file: Path) -> Server:
        """Returns once it runs; `until_ready` waits for more."""
        order = {"environment": dict(environment), "log": str(log)}
        with self._lock:
            place = len(self._made) + len(self._orders)
            self._orders.append(lambda pid: Server(pid, log, token_file))
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            assert self._lock.wait_for(lambda: len(self._made) > place, WAIT_SECONDS), "the zygote is gone"
            return self._made[place]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            if "started" in report:
                with self._lock:
                    server = self._orders.pop(0)(report["started"])
                    self._made.append(server)
                    self._servers[server.pid] = server
                    self._lock.notify_all()
            else:
                self._servers[report.get("ready", report.get("ended"))].report(report)


class Provider:
    """`placet.sample.provider` in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "placet.sample.provider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._before: dict[str, int] = self._ask("/counts")

    def counts(self) -> dict[str, int]:
        """Effects since `reset`; of what the tools here do not do, only if it has happened."""
        now = self._ask("/counts")
        counts = {name: now[name] - self._before[name] for name in now}
        return {name: count for name, count in counts.items() if count or name in DONE_HERE}

    def reset(self) -> None:
        """For the next test."""
        self.release()
        self._before = self._ask("/counts")

    def hold(self, phase: str) -> None:
        """From now on effects wait, "before" or "after" they happen."""
        self._ask("/hold", {"phase": phase})

    def release(self) -> None:
        self._ask("/release", {})

    async def until_held(self, count: int, calls: Iterable[asyncio.Future[Any]]) -> None:
        """So many effects wait here; none of the calls that caused them may have ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (await asyncio.to_thread(self._ask, "/held"))["held"] < count:
            ended = [call.result() for call in calls if call.done()]
            assert [] == ended, ended
            assert time.monotonic() < deadline, f"never: {count} effects held at the provider"
            await asyncio.sleep(POLL_SECONDS)

    def let_go(self, order: str) -> None:
        """What `till.through` waits for."""
        self._ask("/charges", {"reference": order, "order": order, "amount": "0.00"})

    def wait_counts(self, expected: dict[str, int]) -> None:
        """For effects that were held when their caller died, and happen all the same."""
        wait_until(lambda: self.counts() == expected, f"{expected} at the provider")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data)
        with self._opener.open(request, timeout=WAIT_SECONDS) as response:
            return json.load(response)


class Servers:
    """The servers of one test, which all end with it."""

    def __init__(self, zygote: Zygote, folder: Path, provider: Provider) -> None:
        self._zygote = zygote
        self._folder = folder
        self._provider = provider
        self._all: list[Server] = []
        self._own: list[Zygote] = []

    def start(
        self,
        *,
        kill_at: str = "",
        wait: bool = True,
        variables: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Server:
        """`fields` are of the server's configuration; `kill_at` is boundary[:capability]. With `variables` it is not
        forked, but begins with them: for what only the start of a program reads."""
        number = len(self._all)
        token_file = self._folder / f"token-{number}"
        environment = self.variables(token_file, fields)
        if kill_at:
            environment |= {"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": kill_at}
        zygote = self._zygote
        if variables is not None:
            environment |= variables
            zygote = Zygote(variables)
            self._own.append(zygote)
        server = zygote.start(environment, self._folder / f"log-{number}", token_file)
        self._all.append(server)
        return server.until_ready() if wait else server

    def variables(self, token_file: Path, fields: Mapping[str, Any]) -> dict[str, str]:
        given: dict[str, Any] = {
            "app": "tests.faults.till:app",
            "port": 0,
            "health_port": 0,
            "identity_dev": True,
            "token_file": token_file,
            "lease_seconds": LEASE_SECONDS,
            "drain_seconds": 10,
            "store_probe_seconds": 0.3,
            "stall_seconds": 1,
        }
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")}
        variables |= {f"PLACET_{name.upper()}": str(value) for name, value in (given | dict(fields)).items()}
        return variables | {"PYTHONPATH": str(ROOT), PROVIDER_VARIABLE: self._provider.address}

    def close(self) -> None:
        for server in self._all:
            server.signal(signal.SIGKILL)
        for server in self._all:
            server.ended()
        for zygote in self._own:
            zygote.close()
