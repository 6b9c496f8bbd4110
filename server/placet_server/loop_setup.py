"""What runs by itself beside a kernel: heartbeat, writers, loops. Each is ended by the stack, in reverse."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from placet.supervisor import Supervisor
from placet_server.config import Config
from placet_server.core.admission.dispatch import ANSWER_SECONDS, Dispatcher, QueueSettings
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.retention import Retention
from placet_server.embedded.server import EmbeddedPostgres
from placet_server.loops.cancel_deliverer import CancelDeliverer
from placet_server.loops.connector_watcher import ConnectorWatcher
from placet_server.loops.effect_reconciler import EffectReconciler
from placet_server.loops.instance_heartbeat import InstanceHeartbeat
from placet_server.loops.lease_rescuer import LeaseRescuer
from placet_server.loops.memory_trimmer import MemoryTrimmer, malloc_trim, resident_bytes
from placet_server.loops.ownership_checker import OwnershipChecker
from placet_server.loops.postgres_watcher import PostgresWatcher
from placet_server.loops.queue_runner import QueueRunner
from placet_server.loops.quota_meter import QuotaMeter
from placet_server.loops.retention_cleaner import RetentionCleaner
from placet_server.loops.wake_listener import WakeListener
from placet_server.loops.wake_sweeper import WakeSweeper
from placet_server.store import instance
from placet_server.store.clock import Clock
from placet_server.store.connection import ConnectionOptions, connect
from placet_server.store.pool import Pool
from placet_server.telemetry.observer import CountingObserver

if TYPE_CHECKING:
    from placet_server.kernel_setup import KernelOptions, OpenKernel

_WRITER_SECONDS = 5.0


def start_heartbeat(
    stack: AsyncExitStack, opened: OpenKernel, dsn: str, boot: instance.Boot, clock: Clock
) -> InstanceHeartbeat:
    loop = asyncio.get_running_loop()

    def fenced() -> None:
        opened.kernel.fence()
        opened.lose("another process has declared this one dead")

    def tell() -> None:
        loop.call_soon_threadsafe(fenced)

    heartbeat = InstanceHeartbeat(dsn, boot, on_dead=tell, clock=clock)
    heartbeat.start()

    async def stop() -> None:
        await asyncio.to_thread(heartbeat.stop, hand_over=opened.hand_over)

    stack.push_async_callback(stop)
    return heartbeat


def start_writers(stack: AsyncExitStack, opened: OpenKernel) -> None:
    journal = opened.kernel.journal
    # Of their own, because they outlive the runs: these settle through them.
    supervisor = Supervisor()
    for writer in (journal.writer, journal.lanes):
        task = supervisor.start(writer.run())
        task.add_done_callback(lambda _: opened.lose("a writer has ended"))

    async def stop() -> None:
        journal.lanes.close()
        journal.writer.close()
        if not await supervisor.join(_WRITER_SECONDS):
            await supervisor.cancel_all()

    stack.push_async_callback(stop)


def start_loops(
    stack: AsyncExitStack,
    opened: OpenKernel,
    heartbeat: InstanceHeartbeat,
    config: Config,
    observer: CountingObserver,
) -> CancelDeliverer:
    kernel, lease_seconds = opened.kernel, config.lease_seconds
    supervisor = Supervisor()
    stack.push_async_callback(supervisor.cancel_all)
    rescuer = LeaseRescuer(kernel.journal, store_ok_for=heartbeat.store_ok_for, lease_seconds=lease_seconds)
    supervisor.start(rescuer.run())
    deliverer = CancelDeliverer(kernel.engine)
    supervisor.start(deliverer.run())
    supervisor.start(OwnershipChecker(kernel.engine, lease_seconds=lease_seconds).run())
    kept = Retention(
        ended=_days(config.retention_days),
        dead_letter=_days(config.retention_dead_letter_days),
        report=_days(config.retention_report_days),
        delivery=_days(config.retention_delivery_days),
    )
    supervisor.start(RetentionCleaner(kernel.journal, kept, observe=observer.deleted).run())
    if (trim := malloc_trim()) is not None:
        supervisor.start(MemoryTrimmer(trim, resident_bytes).run())
    if kernel.quotas is not None:
        supervisor.start(QuotaMeter(kernel.quotas).run())
    supervisor.start(ConnectorWatcher(kernel.engine.handlers.connectors).run())
    supervisor.start(opened.expirer.run())
    supervisor.start(WakeSweeper(kernel.journal, poll_seconds=config.queue_poll_seconds).run())
    reconciler = EffectReconciler(kernel)
    kernel.may_declare_dead = partial(heartbeat.store_ok_for, lease_seconds)
    kernel.hurry_reconciler = reconciler.reconciler.hurry
    supervisor.start(reconciler.run())
    return deliverer


def start_wake_listener(
    stack: AsyncExitStack, kernel: Kernel, deliverer: CancelDeliverer, options: KernelOptions, dsn: str
) -> None:
    listener = WakeListener(
        kernel.journal,
        connect=partial(connect, dsn, ConnectionOptions(application_name="placet wake")),
        on_cancel=deliverer.hurry,
        observe=options.observer.notified,
    )
    supervisor = Supervisor()
    stack.push_async_callback(supervisor.cancel_all)
    supervisor.start(listener.run())


async def start_queue_runner(stack: AsyncExitStack, kernel: Kernel, config: Config, dsn: str) -> None:
    settings = QueueSettings(
        slots_max=config.queue_slots,
        claim_max=config.queue_claim_max,
        poll_seconds=config.queue_poll_seconds,
        agent_runs_max=config.agent_runs_max,
    )
    options = ConnectionOptions(application_name="placet queue", pinned_plans=True)
    pool = Pool(dsn, options=options, connections_max=1, timeout_seconds=ANSWER_SECONDS)
    await pool.open()
    stack.push_async_callback(pool.close)
    kernel.dispatcher = Dispatcher(kernel, pool=pool, settings=settings)
    supervisor = Supervisor()
    stack.push_async_callback(supervisor.cancel_all)
    supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())


def watch_postgres(stack: AsyncExitStack, opened: OpenKernel, postgres: EmbeddedPostgres) -> None:
    supervisor = Supervisor()
    stack.push_async_callback(supervisor.cancel_all)
    watcher = PostgresWatcher(postgres, lambda: opened.lose("its embedded Postgres has ended"))
    supervisor.start(watcher.run())


def _days(days: float) -> timedelta | None:
    return timedelta(days=days) if days else None
