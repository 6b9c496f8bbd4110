"""The one composition root: a configuration in, a running server out, and down again in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from placet.app import App
from placet.supervisor import Supervisor
from placet_server.config import Config, ConfigRefused
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.execution.servers import tell_draining
from placet_server.core.kernel import Kernel
from placet_server.core.publication.boundary import Hook
from placet_server.core.publication.feed import feed_lag
from placet_server.kernel_setup import KernelOptions, OpenKernel, load_apps, open_kernel, release_version
from placet_server.rpc.announcement import Announcer
from placet_server.rpc.approval import ApprovalServicer
from placet_server.rpc.catalog import CatalogServicer
from placet_server.rpc.health import FeedProbe, HealthLooker, HealthPort, LoopPulse, StoreProbe
from placet_server.rpc.identity.bootstrap import BootstrapTokens, write_bootstrap_token
from placet_server.rpc.identity.dev_token import dev_logins, write_token_files
from placet_server.rpc.identity.setup import open_identity
from placet_server.rpc.interceptor import Interceptor, Parts
from placet_server.rpc.limit import Limiter
from placet_server.rpc.method import (
    APPROVAL,
    CATALOG,
    OPERATIONS,
    POLICY,
    RECOVERY,
    RUNTIME,
    SESSION,
    methods,
)
from placet_server.rpc.observation import Observation
from placet_server.rpc.operations import OperationsServicer
from placet_server.rpc.policy import PolicyServicer
from placet_server.rpc.recovery import RecoveryServicer
from placet_server.rpc.runtime import RuntimeServicer, ServerFacts
from placet_server.rpc.server import PortTaken, RpcServer
from placet_server.rpc.session import SessionServicer
from placet_server.rpc.transport import address_of, transport_of
from placet_server.rpc.validation import Validation
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.health import probe_store
from placet_server.telemetry import logs
from placet_server.telemetry.metric import Metrics
from placet_server.telemetry.observer import CountingObserver
from placet_server.telemetry_setup import count_calls, count_feed, count_work, open_tracing

log = logging.getLogger("placet.server")

# sysexits.h EX_SOFTWARE: start me again.
EXIT_LOST = 70
# What answers need to leave after the last action has ended.
ANSWER_SECONDS = 0.5

Report = Callable[[Mapping[str, bool]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where a started server listens; `health` None: its parent does."""

    main: int
    health: int | None
    metrics: int | None


class PlacetServer:
    """One server in this event loop: `start`, then `stop` from any state. Used once."""

    ports: Ports

    def __init__(
        self,
        config: Config,
        *,
        apps: Sequence[App] = (),
        clock: Clock | None = None,
        settings: ExecutionSettings | None = None,
        boundary_hook: Hook | None = None,
        report: Report | None = None,
    ) -> None:
        """`apps` besides those that `config` names. `report`: the server is one of several with a parent, which is told
        its health and says for all of them where they are. The rest is for tests. Raises ConfigRefused."""
        self._config = config
        self._report = report
        self._metrics = Metrics()
        self._options = KernelOptions(
            apps=(*apps, *load_apps(config.app)),
            observer=CountingObserver(self._metrics),
            clock=clock or DatabaseClock(),
            settings=settings,
            boundary_hook=boundary_hook,
        )
        self._limiter = Limiter(
            calls_max=config.calls_max, watches_max=config.watches_max, tenant_share=config.tenant_share
        )
        self._stack = AsyncExitStack()
        self._tasks = Supervisor()
        self._hurry = asyncio.Event()
        self._serving = False
        self._opened: OpenKernel
        self._rpc: RpcServer
        self._probe: StoreProbe

    @property
    def kernel(self) -> Kernel:
        return self._opened.kernel

    @property
    def target(self) -> str:
        """What a client on this machine dials."""
        return address_of(self._config.host, self.ports.main)

    @property
    def health_target(self) -> str:
        assert self.ports.health is not None, "health is the parent's"
        return address_of(self._config.health_host, self.ports.health)

    async def start(self) -> Ports:
        """Raises ConfigRefused or StoreUnavailable, with everything closed again."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self.ports

    async def lost(self) -> str:
        """Waits until the server cannot go on; returns why."""
        return await asyncio.shield(self._opened.lost)

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Drain, then close: new work is refused at once, running work has the grace (default drain_seconds)."""
        grace = self._config.drain_seconds if grace_seconds is None else grace_seconds
        self._serving = False
        self.kernel.start_draining()
        self._tasks.start(tell_draining(self.kernel.journal))
        await self._rpc.set_serving(False)
        await self._wait(self._config.drain_notice_seconds if grace > 0 else 0.0)
        self._opened.hand_over = await self._drained(grace)
        await self._stack.aclose()

    def hurry(self) -> None:
        """Running work is cancelled now rather than at the end of the grace."""
        self._hurry.set()

    async def _start(self) -> None:
        release = release_version()
        count_calls(self._metrics, self._limiter)
        tracing = open_tracing(self._stack, self._config, self._metrics)
        options = replace(self._options, run_tracing=None if tracing is None else tracing.runs)
        self._opened = await open_kernel(self._stack, self._config, options, release)
        count_work(self._metrics, self._opened)
        logins = dev_logins(self._config)
        parts = Parts(
            telemetry=Observation(self._metrics, None if tracing is None else tracing.calls).layer,
            limiter=self._limiter,
            identity=await open_identity(self._config, logins, self._bootstrap_tokens()),
            validation=Validation(),
            reader_stall_seconds=self._config.reader_stall_seconds,
        )
        announcer = Announcer(is_settling=self.kernel.is_settling)
        self._rpc = self._open_port(parts, announcer, release)
        feed = FeedProbe(partial(feed_lag, self.kernel.journal))
        count_feed(self._metrics, feed)
        self._probe = StoreProbe(partial(self._try_store, feed), self._config.store_probe_seconds)
        await self._probe.look()
        self._stack.push_async_callback(self._tasks.cancel_all)
        self._tasks.start(announcer.run())
        self._tasks.start(self._probe.run())
        await self._rpc.start()
        self._stack.push_async_callback(self._rpc.stop, ANSWER_SECONDS)
        keeping = self._tasks.start(self._rpc.run())
        keeping.add_done_callback(lambda _: self._opened.lose("the main port cannot be served"))
        self._serving = True
        health = self._open_health()
        metrics_port = self._open_metrics_port()
        self.ports = Ports(main=self._rpc.port, health=health, metrics=metrics_port)
        await self._write_bootstrap_token()
        if self._report is None:
            write_token_files(logins, target=self.target, health_target=self.health_target)

    def _bootstrap_tokens(self) -> BootstrapTokens | None:
        """Of any server of the store that writes one; dev servers know none."""
        if self._config.identity_dev:
            return None
        return BootstrapTokens(self._opened.pool, self.kernel.journal.clock)

    async def _write_bootstrap_token(self) -> None:
        path = self._config.bootstrap_token_file
        if path is None:
            return
        health_target = "" if self.ports.health is None else self.health_target
        try:
            is_written = await write_bootstrap_token(
                self._opened.pool,
                self.kernel.journal.clock,
                path,
                target=self.target,
                health_target=health_target,
            )
        except OSError as error:
            raise ConfigRefused(f"PLACET_BOOTSTRAP_TOKEN_FILE cannot be written: {error}") from error
        if is_written:
            log.warning("the operator has no policies: %s has a token that admits the first ones, once", path)

    async def _try_store(self, feed: FeedProbe) -> None:
        await probe_store(self._opened.pool, self.kernel.boot_id)
        await feed.look()

    def _open_port(self, parts: Parts, announcer: Announcer, release: str) -> RpcServer:
        facts = ServerFacts(
            version=release,
            store_version=self._opened.store_version,
            message_bytes_max=self._config.receive_bytes_max,
            name=self._config.name,
            signing_keys=self._opened.key_set,
        )
        served = [
            *methods(RUNTIME, RuntimeServicer(self.kernel, announcer, facts)),
            *methods(APPROVAL, ApprovalServicer(self.kernel)),
            *methods(CATALOG, CatalogServicer(self.kernel)),
            *methods(POLICY, PolicyServicer(self.kernel)),
            *methods(SESSION, SessionServicer(self.kernel)),
            *methods(OPERATIONS, OperationsServicer(self.kernel)),
            *methods(RECOVERY, RecoveryServicer(self.kernel)),
        ]
        services = tuple(
            service.full_name
            for service in (RUNTIME, APPROVAL, CATALOG, POLICY, SESSION, OPERATIONS, RECOVERY)
        )
        try:
            return RpcServer(transport_of(self._config), Interceptor(served, parts), services)
        except PortTaken as error:
            raise ConfigRefused(str(error)) from error

    def _open_health(self) -> int | None:
        lag = self._metrics.loop_lag.of()
        pulse = LoopPulse(asyncio.get_running_loop(), stall_seconds=self._config.stall_seconds, lag=lag)

        def live() -> bool:
            overdue = self.kernel.overdue_thread_count()
            return (
                pulse.answers() and not self.kernel.is_fenced and overdue <= self._config.overdue_threads_max
            )

        def ready() -> bool:
            return self._serving and live() and self._probe.ok()

        checks = {"": ready, "ready": ready, "live": live, "storage": self._probe.ok}
        if self._report is not None:
            looker = HealthLooker(checks, pulse, self._report)
            looker.start()
            self._stack.push_async_callback(asyncio.to_thread, looker.close)
            return None
        address = address_of(self._config.health_host, self._config.health_port)
        try:
            port = HealthPort(address, checks, pulse)
        except RuntimeError as error:
            raise ConfigRefused(str(PortTaken(address))) from error
        port.start()
        self._stack.push_async_callback(asyncio.to_thread, port.close)
        return port.port

    def _open_metrics_port(self) -> int | None:
        if self._config.metrics_port is None:
            return None
        from placet_server.telemetry.exposition import MetricsPort, registry_of

        try:
            port = MetricsPort(
                registry_of(self._metrics), self._config.health_host, self._config.metrics_port
            )
        except OSError as error:
            address = address_of(self._config.health_host, self._config.metrics_port)
            raise ConfigRefused(str(PortTaken(address))) from error
        port.start()
        self._stack.push_async_callback(asyncio.to_thread, port.close)
        return port.port

    async def _drained(self, grace_seconds: float) -> bool:
        """Whether nothing runs any more. Answers that are due have gone out, too."""
        draining = self._tasks.start(self.kernel.drain(grace_seconds))
        hurried = self._tasks.start(self._hurry.wait())
        await asyncio.wait((draining, hurried), return_when=asyncio.FIRST_COMPLETED)
        done = await draining if draining.done() else await self.kernel.drain(0)
        await self._tasks.stop([draining, hurried])
        return done

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
        except TimeoutError:
            return


async def serve(
    config: Config, on_ready: Callable[[PlacetServer], None] | None = None, report: Report | None = None
) -> int:
    """Serve until SIGTERM or SIGINT (0) or until the server cannot go on (70). A second signal cancels running work.

    Raises ConfigRefused, StoreUnavailable.
    """
    server = PlacetServer(config, report=report)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            server.hurry()
        asked.set()

    await server.start()
    _spare_the_collector()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    if on_ready is not None:
        on_ready(server)
    waiting = Supervisor()
    lost, stopping = waiting.start(server.lost()), waiting.start(asked.wait())
    await asyncio.wait((lost, stopping), return_when=asyncio.FIRST_COMPLETED)
    if lost.done():
        log.error("this server cannot go on: %s", lost.result())
    await waiting.stop([stopping])
    await server.stop()
    return EXIT_LOST if lost.done() and not asked.is_set() else 0


def run(
    config: Config, on_ready: Callable[[PlacetServer], None] | None = None, report: Report | None = None
) -> int:
    """`serve` on a fresh uvloop, with logging set up. Returns the exit code, unless a handler's thread will not end:
    then the process ends here."""
    logs.set_up(json_lines=config.log_format == "json", level=config.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(serve(config, on_ready, report))
    if any(
        thread.name.startswith("placet-handler") and thread.is_alive() for thread in threading.enumerate()
    ):
        log.warning("handlers that would not stop are left behind")
        logging.shutdown()
        os._exit(code)
    return code


def _spare_the_collector() -> None:
    """What was made for the start stays for ever and need not be looked at again; and a call makes so many objects
    that the default would look at the young ones every few calls, for no garbage to speak of."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
