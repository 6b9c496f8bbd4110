"""The part of the composition below the wire: store, boot, writer, catalogue, and what `loop_setup.py` starts.

Everything that is opened here is closed by the stack, in reverse.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from placet.app import App, load_app
from placet.failure import DeclarationError
from placet_server.agent_setup import attach_agents, budget_max, inline_agent, open_agents
from placet_server.callback_setup import OpenCallbacks, read_callbacks, start_callbacks
from placet_server.config import Config, ConfigRefused
from placet_server.connector.routes import ConnectorRoutes
from placet_server.connector.setup import open_routes, open_signer
from placet_server.core.admission.catalog import Catalog
from placet_server.core.admission.child import Children
from placet_server.core.admission.policy import PolicyGate
from placet_server.core.admission.quota import Quotas, quotas_of
from placet_server.core.decision.authority import AuthoritySource, FileAuthority, TokenAuthority, people_of
from placet_server.core.decision.authority_http import HttpAuthority
from placet_server.core.decision.policy import Policies
from placet_server.core.decision.recheck import Recheck
from placet_server.core.execution.engine import Engine, ExecutionSettings
from placet_server.core.execution.handlers import HandlerTable
from placet_server.core.execution.program import Programs
from placet_server.core.execution.threads import HandlerThreads
from placet_server.core.governance.governor import Governor
from placet_server.core.governance.tools import governing_app, uses_of
from placet_server.core.kernel import Kernel
from placet_server.core.publication.boundary import Boundary, Hook
from placet_server.core.publication.callback import Callbacks
from placet_server.core.publication.doorbell import Doorbell
from placet_server.core.publication.hub import Hub
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lane_writer import LaneWriter
from placet_server.core.publication.relay import Relay
from placet_server.embedded.error import EmbeddedError
from placet_server.embedded.server import EmbeddedPostgres
from placet_server.human import human_app, human_manifest
from placet_server.loop_setup import (
    start_heartbeat,
    start_loops,
    start_queue_runner,
    start_wake_listener,
    start_writers,
    watch_postgres,
)
from placet_server.loops.approval_expirer import ApprovalExpirer
from placet_server.model.durability import Durability, DurabilityClass
from placet_server.model.errors import MalformedRequest, ManifestRefused
from placet_server.rpc.convert.capability import manifest_of
from placet_server.settings_file import SettingsFile, SettingsFileRefused
from placet_server.store import instance
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.connection import ConnectionOptions, StoreUnfit, connect
from placet_server.store.durability import verify_durability
from placet_server.store.migrate import migrate, validate
from placet_server.store.patience import Patience
from placet_server.store.pool import Pool
from placet_server.telemetry.observer import CountingObserver

if TYPE_CHECKING:
    from placet_server.harness.tracing import RunTracing

log = logging.getLogger("placet.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """What tests and the testing kit replace."""

    apps: Sequence[App]
    observer: CountingObserver
    clock: Clock = field(default_factory=DatabaseClock)
    settings: ExecutionSettings | None = None
    boundary_hook: Hook | None = None
    programs: Programs | None = None
    run_tracing: RunTracing | None = None


@dataclass(slots=True, kw_only=True)
class OpenKernel:
    """`lost` is done once the server cannot go on, with the reason. `hand_over`: nothing runs any more, so the
    lease may be given up at the end rather than left to expire."""

    kernel: Kernel
    pool: Pool
    store_version: str
    lost: asyncio.Future[str]
    connectors: ConnectorRoutes
    key_set: str
    expirer: ApprovalExpirer
    callbacks: OpenCallbacks = field(default_factory=OpenCallbacks)
    hand_over: bool = False

    def lose(self, why: str) -> None:
        """The first reason counts."""
        if not self.lost.done():
            self.lost.set_result(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    dsn: str
    declared: DurabilityClass
    # Set if it is ours: no other process can be at work on it.
    postgres: EmbeddedPostgres | None = None


async def open_kernel(
    stack: AsyncExitStack, config: Config, options: KernelOptions, release: str
) -> OpenKernel:
    """Raises ConfigRefused, StoreUnavailable."""
    patience = Patience(config.store_wait_seconds)
    callbacks = await read_callbacks(config)
    try:
        store = await _open_store(stack, config)
        prepare = partial(migrate if config.auto_migrate else validate, store.dsn)
        await patience.until_answered(prepare)
        pool = await _open_pool(stack, config, store)
        durability, store_version = await patience.until_answered(partial(_look_at, pool, store))
    except (StoreUnfit, EmbeddedError) as error:
        raise ConfigRefused(str(error)) from error
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    boot = instance.this_boot(release, config.lease_seconds)
    signer = await open_signer(config, pool, options.clock)
    routes = open_routes(config, pool, signer, options.observer.connector_ended)
    settings = options.settings or ExecutionSettings(handler_threads_max=config.threads_max)
    journal = _journal(
        options, settings, store.dsn, pool, boot.boot_id, durability.class_, callbacks.callbacks
    )
    agents = open_agents(stack, config)
    kernel = _kernel(config, options, settings, journal, durability, routes, options.programs or agents)
    attach_agents(kernel, agents, options.observer, options.run_tracing)
    routes.engine = kernel.engine
    kernel.authority = _open_authority(stack, config)
    kernel.message_skew_seconds = config.message_skew_seconds
    kernel.sessions_open_max = config.sessions_open_max
    kernel.quotas = _open_quotas(stack, config, kernel.journal)
    opened = OpenKernel(
        kernel=kernel,
        pool=pool,
        store_version=store_version,
        lost=lost,
        connectors=routes,
        key_set=signer.key_set,
        expirer=ApprovalExpirer(kernel.journal),
    )
    stack.callback(kernel.engine.threads.close)
    stack.push_async_callback(kernel.engine.lookups.close)
    boot = replace(boot, serves=kernel.engine.handlers.served(), queue_slots=config.queue_slots)
    await patience.until_answered(partial(_register, store, pool, boot, options.clock))
    heartbeat = start_heartbeat(stack, opened, store.dsn, boot, options.clock)
    start_writers(stack, opened)
    stack.push_async_callback(routes.close)
    await patience.until_answered(partial(_admit_own, kernel))
    if config.admit_apps:
        await patience.until_answered(partial(_admit_apps, kernel.catalog, options.apps))
    deliverer = start_loops(stack, opened, heartbeat, config, options.observer)
    opened.callbacks = start_callbacks(stack, kernel, callbacks, config, options.observer)
    if config.notify:
        start_wake_listener(stack, kernel, deliverer, options, store.dsn)
    if config.queue_slots:
        await start_queue_runner(stack, kernel, config, store.dsn)
    if store.postgres is not None:
        watch_postgres(stack, opened, store.postgres)
    stack.push_async_callback(kernel.engine.supervisor.cancel_all)
    return opened


def _open_authority(stack: AsyncExitStack, config: Config) -> AuthoritySource:
    """Raises ConfigRefused."""
    if config.authority_file is not None:
        try:
            return FileAuthority(SettingsFile(config.authority_file, people_of))
        except SettingsFileRefused as error:
            raise ConfigRefused(f"PLACET_AUTHORITY_FILE: {error}") from error
    if config.authority_url:
        source = HttpAuthority(
            config.authority_url,
            keep_seconds=config.authority_keep_seconds,
            token_file=config.authority_token_file,
        )
        stack.push_async_callback(source.close)
        return source
    return TokenAuthority()


def _open_quotas(stack: AsyncExitStack, config: Config, journal: Journal) -> Quotas | None:
    """Raises ConfigRefused."""
    if config.quota_file is None:
        return None
    try:
        quotas = Quotas(SettingsFile(config.quota_file, quotas_of), journal)
    except SettingsFileRefused as error:
        raise ConfigRefused(f"PLACET_QUOTA_FILE: {error}") from error
    stack.push_async_callback(quotas.close)
    return quotas


def load_apps(references: Sequence[str]) -> list[App]:
    """Each `module:object` or the name of an entry point. Raises ConfigRefused."""
    try:
        return [load_app(reference) for reference in references]
    except DeclarationError as error:
        raise ConfigRefused(str(error)) from error


def release_version() -> str:
    """Of the installed distribution."""
    try:
        return version("placet")
    except PackageNotFoundError:
        return "0+source"


async def _open_store(stack: AsyncExitStack, config: Config) -> _Store:
    if config.dsn:
        declared = DurabilityClass[config.dsn_durability.upper()]
        return _Store(dsn=config.dsn, declared=declared)
    postgres = EmbeddedPostgres(config.data_dir)
    await asyncio.to_thread(postgres.start)
    stack.push_async_callback(asyncio.to_thread, postgres.stop)
    declared = DurabilityClass.EPHEMERAL if config.ephemeral else DurabilityClass.DURABLE_SINGLE_PROCESS
    return _Store(dsn=postgres.dsn, declared=declared, postgres=postgres)


async def _open_pool(stack: AsyncExitStack, config: Config, store: _Store) -> Pool:
    pool = Pool(store.dsn, connections_max=config.store_connections_max)
    await pool.open()
    stack.push_async_callback(pool.close)
    return pool


async def _look_at(pool: Pool, store: _Store) -> tuple[Durability, str]:
    async with pool.connection() as connection:
        durability = await verify_durability(connection, store.declared)
        # Since 10 the driver keeps the minor release in `micro`.
        server = connection.get_server_version()
    return durability, f"{server.major}.{server.micro}"


def _kernel(
    config: Config,
    options: KernelOptions,
    settings: ExecutionSettings,
    journal: Journal,
    durability: Durability,
    connectors: ConnectorRoutes,
    programs: Programs,
) -> Kernel:
    apps = (*options.apps, human_app(journal))
    governor = Governor()
    built_in = governing_app(governor)
    handlers = HandlerTable(
        (tool for app in apps for tool in app.tools),
        connectors,
        built_in=built_in.tools,
        programs=programs,
    )
    engine = Engine(
        journal=journal,
        handlers=handlers,
        settings=settings,
        threads=HandlerThreads(settings.handler_threads_max),
        observer=options.observer,
    )
    journal.relay.is_here = lambda action_id: engine.runs.get(action_id) is not None
    policies = Policies(journal.pool, options.clock)
    catalog = Catalog(
        journal.pool,
        handlers=handlers,
        clock=options.clock,
        built_in=(*manifest_of(built_in.manifest()).capabilities, inline_agent()),
        budget_max=budget_max(config),
    )
    kernel = Kernel(
        catalog=catalog,
        policies=policies,
        policy_gate=PolicyGate(policies, journal),
        engine=engine,
        durability=durability,
        lease_seconds=config.lease_seconds,
    )
    engine.children = Children(kernel)
    engine.recheck = Recheck(policies, journal, catalog.offered)
    governor.attach(kernel, uses_of(kernel))
    return kernel


def _journal(
    options: KernelOptions,
    settings: ExecutionSettings,
    dsn: str,
    pool: Pool,
    boot_id: str,
    durability: DurabilityClass,
    callbacks: Callbacks,
) -> Journal:
    writer = BatchWriter(
        connect=partial(connect, dsn, ConnectionOptions(application_name="placet writer", pinned_plans=True)),
        boot_id=boot_id,
        clock=options.clock,
        observe=options.observer.flushed,
    )
    relay = Relay()
    hub = Hub(relay)
    return Journal(
        pool=pool,
        writer=writer,
        lanes=LaneWriter(pool=pool, hub=hub, clock=options.clock),
        clock=options.clock,
        boot_id=boot_id,
        durability=durability,
        relay=relay,
        hub=hub,
        doorbell=Doorbell(relay),
        boundary=Boundary(options.boundary_hook or kill_hook(os.environ)),
        reattach_grace_seconds=settings.reattach_grace_seconds,
        note_dead=options.observer.dead,
        callbacks=callbacks,
    )


async def _register(store: _Store, pool: Pool, boot: instance.Boot, clock: Clock) -> None:
    async with pool.tx() as connection:
        await instance.register(connection, boot, now=clock.now())
        if store.postgres is not None:
            await instance.mark_all_others_dead(connection, [boot.boot_id], now=clock.now())


async def _admit_own(kernel: Kernel) -> None:
    """What the server itself offers."""
    await kernel.catalog.admit_local(human_manifest(human_app(kernel.journal)))


async def _admit_apps(catalog: Catalog, apps: Sequence[App]) -> None:
    for app in apps:
        try:
            result = await catalog.admit_local(manifest_of(app.manifest()))
        except (ManifestRefused, MalformedRequest) as error:
            told = "; ".join(f"{v.field}: {v.description}" for v in error.violations)
            raise ConfigRefused(f"app {app.name!r} is refused: {told}") from error
        for problem in result.problems:
            log.warning("app %s: %s: %s", app.name, problem.path, problem.message)


def kill_hook(environ: Mapping[str, str]) -> Hook | None:
    """PLACET_KILL_AT=boundary[:capability[:nth]] ends this process when it comes there for the nth time; only with
    PLACET_TEST_BOUNDARIES=1.
    """
    wanted, _, rest = environ.get("PLACET_KILL_AT", "").partition(":")
    capability, _, nth = rest.partition(":")
    left = int(nth or 1)
    if not wanted or environ.get("PLACET_TEST_BOUNDARIES") != "1":
        return None

    def kill(name: str, reached_by: str) -> None:
        nonlocal left
        if name != wanted or capability not in ("", reached_by):
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill
