"""The process that owns what several servers share: the embedded Postgres if there is one, the migration, the main
port's number, the health port, the metrics port, the token file, and the children's lives. It serves no call.

Its health is what is true of all children. One that ends is started again; its boot is declared dead at once, since
nobody knows better that it is. SIGTERM drains all; a second one cancels what still runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from placet.supervisor import Supervisor
from placet_server.config import Config, ConfigRefused
from placet_server.embedded.error import EmbeddedError
from placet_server.embedded.server import EmbeddedPostgres
from placet_server.model.errors import StoreUnavailable
from placet_server.parent.child import Child, ChildSettings, log
from placet_server.parent.metrics import ChildrenCollector
from placet_server.parent.reservation import reserve
from placet_server.parent.setting import child_environment
from placet_server.rpc.health import HealthPort, LoopPulse
from placet_server.rpc.identity.dev_token import dev_logins, write_token_files
from placet_server.rpc.server import PortTaken
from placet_server.rpc.transport import address_of
from placet_server.store import instance
from placet_server.store.connection import StoreUnfit, connect
from placet_server.store.migrate import migrate, validate
from placet_server.store.patience import Patience
from placet_server.telemetry import logs
from placet_server.telemetry.exposition import MetricsPort
from placet_server.telemetry.metric import Metrics

EXIT_LOST = 70
# Beyond notice and drain; then the children are killed.
END_SECONDS = 10.0
SILENCE_SECONDS = 1.0
POSTGRES_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyParent:
    """What is told when every child serves: addresses, and (pid, boot) of each child."""

    target: str
    health_target: str
    children: Sequence[tuple[int, str]]


class Parent:
    """Used once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = AsyncExitStack()
        self._tasks = Supervisor()
        self._metrics = Metrics()
        self._asked = asyncio.Event()
        self._lost = ""
        self._serving = False
        self._dsn = config.dsn
        self._postgres: EmbeddedPostgres | None = None
        self._lives: list[asyncio.Task[None]] = []
        self.children: list[Child] = []

    async def run(self, on_ready: Callable[[ReadyParent], None] | None = None) -> int:
        """Until SIGTERM or SIGINT (0), or until it cannot go on (70). Raises ConfigRefused, StoreUnavailable."""
        loop = asyncio.get_running_loop()
        async with self._stack:
            await self._open_store()
            port = self._reserve_port()
            health_port = self._open_health()
            self._open_metrics()
            target = address_of(self._config.host, port)
            health_target = address_of(self._config.health_host, health_port)
            write_token_files(dev_logins(self._config), target=target, health_target=health_target)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._ask)
            self._start_children(port)
            try:
                await self._serve(partial(self._ready, on_ready, target, health_target))
            finally:
                await self._stop_children()
        return EXIT_LOST if self._lost else 0

    async def _serve(self, ready: Callable[[], None]) -> None:
        for child in self.children:
            if not await child.until_up():
                if self._asked.is_set():
                    return
                _refuse(child)
        if not self._asked.is_set():
            self._serving = True
            ready()
        await self._asked.wait()

    def _ready(self, on_ready: Callable[[ReadyParent], None] | None, target: str, health_target: str) -> None:
        if on_ready is not None:
            told = [(child.pid, child.boot_id) for child in self.children]
            on_ready(ReadyParent(target=target, health_target=health_target, children=told))

    def _ask(self) -> None:
        self._serving = False
        self._asked.set()
        for child in self.children:
            child.stop()

    async def _open_store(self) -> None:
        config = self._config
        try:
            if not config.dsn:
                self._postgres = postgres = EmbeddedPostgres(config.data_dir)
                await asyncio.to_thread(postgres.start)
                self._stack.push_async_callback(asyncio.to_thread, postgres.stop)
                self._dsn = postgres.dsn
            prepare = partial(migrate if config.auto_migrate else validate, self._dsn)
            await Patience(config.store_wait_seconds).until_answered(prepare)
        except (StoreUnfit, EmbeddedError) as error:
            raise ConfigRefused(str(error)) from error
        if self._postgres is not None:
            connection = await connect(self._dsn)
            try:
                await instance.mark_all_others_dead(connection, [])
            finally:
                connection.terminate()
            self._stack.push_async_callback(self._tasks.cancel_all)
            self._tasks.start(self._watch_postgres(self._postgres))

    async def _watch_postgres(self, postgres: EmbeddedPostgres) -> None:
        while postgres.alive:  # noqa: ASYNC110
            await asyncio.sleep(POSTGRES_LOOK_SECONDS)
        self._lost = "its embedded Postgres has ended"
        log.error("this server cannot go on: %s", self._lost)
        self._ask()

    def _reserve_port(self) -> int:
        config = self._config
        held = self._stack.enter_context(reserve(config.host, config.port, is_shared=config.reuse_port))
        return int(held.getsockname()[1])

    def _start_children(self, port: int) -> None:
        config, postgres = self._config, self._postgres
        changes: dict[str, object] = {
            "processes": 1,
            "port": port,
            "reuse_port": True,
            "auto_migrate": False,
            "dsn": self._dsn,
            "data_dir": None,
            "ephemeral": False,
        }
        if postgres is not None:
            changes["dsn_durability"] = "ephemeral" if postgres.ephemeral else "durable_single_process"
        if config.metrics_port is not None:
            changes |= {"health_host": "127.0.0.1", "metrics_port": 0}
        settings = ChildSettings(
            environment=child_environment(config.model_copy(update=changes), os.environ),
            silence_seconds=config.stall_seconds + SILENCE_SECONDS,
            lock=None if postgres is None else postgres.lock_descriptor,
            on_ended=self._retire,
        )
        for number in range(1, config.processes + 1):
            child = Child(number, settings)
            self.children.append(child)
            self._lives.append(self._tasks.start(child.keep()))

    async def _stop_children(self) -> None:
        if not self._asked.is_set():
            self._ask()
        config = self._config
        grace = END_SECONDS
        if not self._lost:
            grace += config.drain_notice_seconds + config.drain_seconds
        _, running = await asyncio.wait(self._lives, timeout=grace)
        if running:
            log.error("processes that would not end are killed")
            for child in self.children:
                child.signal(signal.SIGKILL)
            await asyncio.wait(self._lives)

    async def _retire(self, boot_id: str) -> None:
        """It has ended, so nobody need wait for its lease. If the store does not answer, the lease decides."""
        try:
            connection = await connect(self._dsn)
            try:
                await instance.retire(connection, boot_id)
            finally:
                connection.terminate()
        except Exception as error:
            log.warning("the end of boot %s is left to its lease: %s", boot_id, type(error).__name__)

    def _open_health(self) -> int:
        config = self._config
        pulse = LoopPulse(
            asyncio.get_running_loop(),
            stall_seconds=config.stall_seconds,
            lag=self._metrics.loop_lag.of(),
        )

        def live() -> bool:
            return pulse.answers() and all(child.lives() for child in self.children)

        def ready() -> bool:
            return self._serving and live() and all(child.is_well("ready") for child in self.children)

        def storage() -> bool:
            return bool(self.children) and all(child.is_well("storage") for child in self.children)

        address = address_of(config.health_host, config.health_port)
        try:
            port = HealthPort(address, {"": ready, "ready": ready, "live": live, "storage": storage}, pulse)
        except RuntimeError as error:
            raise ConfigRefused(str(PortTaken(address))) from error
        port.start()
        self._stack.push_async_callback(asyncio.to_thread, port.close)
        return port.port

    def _open_metrics(self) -> None:
        config = self._config
        if config.metrics_port is None:
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(ChildrenCollector(self._metrics_ports))
        try:
            port = MetricsPort(registry, config.health_host, config.metrics_port)
        except OSError as error:
            address = address_of(config.health_host, config.metrics_port)
            raise ConfigRefused(str(PortTaken(address))) from error
        port.start()
        self._stack.push_async_callback(asyncio.to_thread, port.close)

    def _metrics_ports(self) -> dict[int, int]:
        return {child.number: child.metrics_port for child in self.children if child.metrics_port is not None}


def _refuse(child: Child) -> None:
    kind, text = child.problem
    if kind == "unavailable":
        raise StoreUnavailable(detail=text)
    raise ConfigRefused(text or f"process {child.number} has ended before it was ready")


def run(config: Config, on_ready: Callable[[ReadyParent], None] | None = None) -> int:
    """On a fresh event loop, with logging set up. Not uvloop: it forks, and threads of gRPC are at work here."""
    logs.set_up(json_lines=config.log_format == "json", level=config.log_level)

    async def main() -> int:
        return await Parent(config).run(on_ready)

    return asyncio.run(main())
