"""Health for probes: a plaintext port of its own, served by threads, so that it answers when the event loop does not.

`live`: kill me if it fails. `ready`: send me calls. `storage`: the store reads and writes. The empty name: `ready`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from time import monotonic
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from placet_server.model.errors import StoreUnavailable
from placet_server.store.feed import FeedLag
from placet_server.telemetry.metric import Histogram

log = logging.getLogger("placet.health")

LOOK_SECONDS = 0.25
PROBES_MISSED_MAX = 3
# A feed that is so late is worth a line in the log.
FEED_LAG_SECONDS = 10.0
_CALLS_MAX = 64

Check = Callable[[], bool]


class LoopPulse:
    """Whether the event loop answers. `beat` is called from another thread, again and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, stall_seconds: float, lag: Histogram) -> None:
        """`lag` gets the seconds that each answer took."""
        self._loop = loop
        self._stall_seconds = stall_seconds
        self._lag = lag
        self._asked_at: float | None = None

    def beat(self) -> None:
        if self._asked_at is None:
            self._asked_at = monotonic()
            self._loop.call_soon_threadsafe(self._answer)

    def answers(self) -> bool:
        asked_at = self._asked_at
        return asked_at is None or monotonic() - asked_at < self._stall_seconds

    def _answer(self) -> None:
        if self._asked_at is not None:
            self._lag.observe(monotonic() - self._asked_at)
            self._asked_at = None


class StoreProbe:
    """Tries the store again and again; what it found counts for a few seconds only."""

    def __init__(self, probe: Callable[[], Awaitable[object]], every_seconds: float) -> None:
        """`probe` is bounded in time and raises StoreUnavailable."""
        self._probe = probe
        self._every_seconds = every_seconds
        self._ok_at = float("-inf")
        self._was_ok = True

    def ok(self) -> bool:
        """From any thread."""
        return monotonic() - self._ok_at < PROBES_MISSED_MAX * self._every_seconds

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._every_seconds)

    async def look(self) -> None:
        try:
            await self._probe()
        except StoreUnavailable as error:
            if self._was_ok:
                log.warning("the store does not answer: %s", error.detail)
            self._was_ok = False
        except Exception:
            log.exception("the store could not be tried")
            self._was_ok = False
        else:
            if not self._was_ok:
                log.info("the store answers again")
            self._was_ok = True
            self._ok_at = monotonic()


class FeedProbe:
    """How long the feeds are held up, by whom: asked together with the store, and said in the log when it is long."""

    def __init__(self, look: Callable[[], Awaitable[FeedLag]]) -> None:
        self._look = look
        self._is_long = False
        self.seconds = 0.0

    async def look(self) -> None:
        lag = await self._look()
        self.seconds = lag.seconds
        if (lag.seconds >= FEED_LAG_SECONDS) is self._is_long:
            return
        self._is_long = not self._is_long
        if self._is_long:
            by = "a prepared one" if lag.backend is None else f"that of backend {lag.backend}"
            log.warning("a transaction holds up the feed, open for %.0f s: %s", lag.seconds, by)
        else:
            log.info("nothing holds up the feed any more")


class HealthLooker:
    """Looks again and again from a thread, until closed, and tells what it saw. `checks` run in that thread."""

    def __init__(
        self, checks: Mapping[str, Check], pulse: LoopPulse, tell: Callable[[dict[str, bool]], None]
    ) -> None:
        self._checks = checks
        self._pulse = pulse
        self._tell = tell
        self._closing = Event()
        self._thread = Thread(target=self._run, name="placet-health", daemon=True)

    def start(self) -> None:
        """Looks a first time before it returns."""
        self._look()
        self._thread.start()

    def close(self) -> None:
        """Blocks for a moment."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self._pulse.beat()
            except RuntimeError:
                # The loop is closed: the process is about to end.
                return
            self._look()

    def _look(self) -> None:
        self._tell({service: check() for service, check in self._checks.items()})


class HealthPort:
    """Serves grpc.health.v1 from threads until closed."""

    def __init__(self, address: str, checks: Mapping[str, Check], pulse: LoopPulse) -> None:
        """Binds; `port` says where. Raises RuntimeError if the port is taken. `checks` run in a thread."""
        self._servicer = _Servicer()
        self._server = grpc.server(
            ThreadPoolExecutor(4, thread_name_prefix="placet-health"),
            options=[("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=_CALLS_MAX,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        self.port = self._server.add_insecure_port(address)
        self._told: dict[str, bool] = {}
        self._looker = HealthLooker(checks, pulse, self._set)

    def start(self) -> None:
        self._looker.start()
        self._server.start()

    def close(self) -> None:
        """Blocks for a moment."""
        self._servicer.enter_graceful_shutdown()
        self._server.stop(grace=0.5).wait()
        self._looker.close()

    def _set(self, statuses: Mapping[str, bool]) -> None:
        """Only what has changed: a watcher that does not read would fill up, and hold up all others."""
        for service, is_ok in statuses.items():
            if self._told.get(service) is not is_ok:
                self._servicer.set(service, serving_status(is_ok))
                self._told[service] = is_ok


class _Servicer(health.HealthServicer):
    """The library's holds its lock while a watcher's answer is on its way, and that needs the thread that serves. So
    that thread must not wait for the lock: what is to be done when a watcher leaves is done by another one.
    """

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=True)
        self._leaving = ThreadPoolExecutor(1, thread_name_prefix="placet-health-leaving")

    def _on_close_callback(self, send_response_callback: Any, service: str) -> Callable[[], object]:
        leave = super()._on_close_callback(send_response_callback, service)  # type: ignore[misc]
        return lambda: self._leaving.submit(leave)


def serving_status(ok: bool) -> Any:
    """The enum's number, whose type its stubs do not name."""
    return health_pb2.HealthCheckResponse.SERVING if ok else health_pb2.HealthCheckResponse.NOT_SERVING
