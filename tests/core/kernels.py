"""A whole core over a real database, without a network: what most tests of the core run against."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from placet.app import App
from placet_server.agent_setup import inline_agent
from placet_server.connector.routes import ConnectorRoutes
from placet_server.connector.settings import ConnectorSettings
from placet_server.connector.token import SigningKey, TokenSigner, new_private_key
from placet_server.core.admission.catalog import Catalog
from placet_server.core.admission.child import Children
from placet_server.core.admission.dispatch import ANSWER_SECONDS, Dispatcher, QueueSettings
from placet_server.core.admission.execute import Executed, execute
from placet_server.core.admission.pipeline import Call
from placet_server.core.admission.policy import PolicyGate
from placet_server.core.admission.submit import Submitted, submit
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
from placet_server.core.publication.hub import Hub
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lane_writer import LaneWriter
from placet_server.core.publication.lease import new_lease_id
from placet_server.human import human_app, human_manifest
from placet_server.model.action import Action, Invocation, Submission
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.durability import Durability, DurabilityClass, Replication
from placet_server.rpc.convert.capability import manifest_of
from placet_server.store import action as actions
from placet_server.store import instance
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.connection import ConnectionOptions, connect
from placet_server.store.pool import Pool

SIGNING_KEY = new_private_key()

ALICE = Caller(tenant="acme", subject="alice", scopes=frozenset({"*"}))
BOB = Caller(tenant="acme", subject="bob", scopes=frozenset({"*"}))
EVE = Caller(tenant="evil", subject="alice", scopes=frozenset({"*"}))

DURABILITY = Durability(
    class_=DurabilityClass.EPHEMERAL,
    fsync=False,
    full_page_writes=True,
    synchronous_commit="on",
    replication=Replication.NONE,
)


@asynccontextmanager
async def open_kernel(
    dsn: str,
    app: App,
    *,
    settings: ExecutionSettings | None = None,
    clock: Clock | None = None,
    lease_seconds: float = 15.0,
    queue: QueueSettings | None = None,
    connectors: ConnectorSettings | None = None,
    questions: bool = False,
    programs: Programs | None = None,
    boundary_hook: Hook | None = None,
) -> AsyncIterator[Kernel]:
    """A boot with its writer, without loops: tests step those themselves. Leaving the block is a crash, not a drain.

    `queue`: with a dispatcher; `dispatch` steps it. `questions`: with what the server itself offers. `programs`: what
    runs agents. `boundary_hook`: called at each boundary."""
    clock = clock or DatabaseClock()
    settings = settings or ExecutionSettings()
    boot = replace(
        instance.this_boot("test", lease_seconds),
        serves=(*HandlerTable(app.tools).served(), *(("human.input@1",) if questions else ())),
        queue_slots=0 if queue is None else queue.slots_max,
    )
    pool = Pool(dsn, connections_max=8)
    await pool.open()
    journal = _journal_of(dsn, pool, boot.boot_id, clock, settings, boundary_hook)
    signer = TokenSigner([SigningKey(SIGNING_KEY)], "test")
    routes = ConnectorRoutes(pool, connectors or ConnectorSettings(hosts=()), signer)
    own, built_in = human_app(journal), governing_app(governor := Governor())
    handlers = HandlerTable(
        (*app.tools, *own.tools * questions), routes, built_in=built_in.tools, programs=programs
    )
    threads = HandlerThreads(settings.handler_threads_max)
    routes.engine = engine = Engine(journal=journal, handlers=handlers, settings=settings, threads=threads)
    catalog = Catalog(pool, handlers=handlers, clock=clock, built_in=_offered())
    async with pool.connection() as connection:
        await instance.register(connection, boot, now=clock.now())
    await catalog.admit_local(manifest_of(app.manifest()))
    if questions:
        await catalog.admit_local(human_manifest(own))
    writing = [engine.supervisor.start(each.run()) for each in (journal.writer, journal.lanes)]
    kernel = _kernel_of(engine, catalog, lease_seconds)
    engine.children = Children(kernel)
    governor.attach(kernel, uses_of(kernel))
    engine.recheck = Recheck(kernel.policies, journal, catalog.offered)
    claims = _claims(dsn)
    await claims.open()
    if queue is not None:
        kernel.dispatcher = Dispatcher(kernel, pool=claims, settings=queue)
    try:
        yield kernel
    finally:
        # Nothing may be written any more before anything else learns of the end.
        await engine.supervisor.stop(writing)
        await engine.supervisor.cancel_all()
        await routes.close()
        threads.close()
        await claims.close()
        await pool.close()


def _journal_of(
    dsn: str, pool: Pool, boot_id: str, clock: Clock, settings: ExecutionSettings, hook: Hook | None
) -> Journal:
    hub = Hub()
    return Journal(
        pool=pool,
        writer=BatchWriter(
            connect=lambda: connect(dsn, ConnectionOptions(pinned_plans=True)), boot_id=boot_id, clock=clock
        ),
        lanes=LaneWriter(pool=pool, hub=hub, clock=clock),
        hub=hub,
        clock=clock,
        boot_id=boot_id,
        durability=DURABILITY.class_,
        boundary=Boundary(hook),
        poll_seconds=0.05,
        reattach_grace_seconds=settings.reattach_grace_seconds,
    )


@cache
def _offered() -> tuple[Capability, ...]:
    """What every kernel offers itself, with digests that are made once."""
    return (*manifest_of(governing_app(Governor()).manifest()).capabilities, inline_agent())


def _claims(dsn: str) -> Pool:
    options = ConnectionOptions(application_name="placet queue", pinned_plans=True)
    return Pool(dsn, options=options, connections_max=1, timeout_seconds=ANSWER_SECONDS)


def _kernel_of(engine: Engine, catalog: Catalog, lease_seconds: float) -> Kernel:
    policies = Policies(engine.journal.pool, engine.journal.clock)
    return Kernel(
        catalog=catalog,
        policies=policies,
        policy_gate=PolicyGate(policies, engine.journal),
        engine=engine,
        durability=DURABILITY,
        lease_seconds=lease_seconds,
    )


def call_of(
    capability: str,
    value: Any,
    key: str = "",
    *,
    caller: Caller = ALICE,
    time_left_seconds: float | None = 10.0,
    **options: Any,
) -> Call:
    invocation = Invocation(
        capability=capability, input_json=json.dumps(value), idempotency_key=key, **options
    )
    return Call(caller=caller, invocation=invocation, time_left_seconds=time_left_seconds)


async def run(
    kernel: Kernel,
    capability: str,
    value: Any,
    key: str = "",
    *,
    on_admitted: Callable[[str], None] | None = None,
    **options: Any,
) -> Executed:
    call = call_of(capability, value, key, **options)._replace(on_admitted=on_admitted)
    return await execute(kernel, call)


# Each step looks at what is stored.
QUEUE = QueueSettings(poll_seconds=0.0)


async def put(
    kernel: Kernel,
    capability: str,
    value: Any,
    key: str = "",
    *,
    place: Submission | None = None,
    **options: Any,
) -> Submitted:
    """Submits it; nothing runs until `dispatch`."""
    return await submit(kernel, call_of(capability, value, key, **options), place or Submission())


async def dispatch(kernel: Kernel) -> None:
    """Until there is nothing more that could be started now."""
    assert kernel.dispatcher is not None
    while await kernel.dispatcher.run_once():
        pass


def let_children_stand_in_line(kernel: Kernel) -> None:
    """As where no slot is free: none begins but by `dispatch`."""
    assert kernel.dispatcher is not None
    kernel.dispatcher.slot_for_child = lambda *_: None  # type: ignore[method-assign]


async def work_off(kernel: Kernel, seconds: float = 30.0) -> None:
    """Until nothing that could be claimed is left, and nothing runs."""
    assert kernel.dispatcher is not None
    idle = 0
    async with asyncio.timeout(seconds):
        # What ends while a claim is under way may have kept that claim from more: so one more look.
        while idle < 2:
            await dispatch(kernel)
            if not len(kernel.engine.runs) and not kernel.dispatcher.is_busy:
                idle += 1
                continue
            idle = 0
            # What runs may put more in line, and wait for it.
            ring = asyncio.ensure_future(kernel.journal.doorbell.wait(1.0))
            runs = [run.task for run in kernel.engine.runs if run.task is not None]
            await asyncio.wait([ring, *runs], return_when=asyncio.FIRST_COMPLETED)
            ring.cancel()


async def places(kernel: Kernel) -> dict[str, list[str]]:
    """The ids that stand in each table beside the actions."""
    found = {}
    async with kernel.journal.pool.connection() as connection:
        for table in ("queue_ready", "queue_delayed", "dead_letters"):
            rows = await connection.fetch(f"select action_id::text from {table} order by action_id")
            found[table] = [row[0] for row in rows]
    return found


async def read(kernel: Kernel, action_id: str, tenant: str = "acme") -> Action:
    async with kernel.journal.pool.connection() as connection:
        action = await actions.get(connection, tenant, action_id, full=True)
    assert action is not None
    return action


async def claimed(kernel: Kernel, action_id: str, tenant: str = "acme") -> Action:
    """Out of the queue by hand: it has a lease of its own, and has not begun."""
    action = await read(kernel, action_id, tenant)
    async with kernel.journal.pool.connection() as connection:
        done = await actions.claim(
            connection,
            action,
            lease_id=new_lease_id(),
            boot_id=kernel.boot_id,
            timeout_seconds=9.0,
            now=None,
        )
    assert done is not None
    return await read(kernel, action_id, tenant)


async def declare_dead(kernel: Kernel) -> None:
    """As a rescuer that has won the boot's lease does; what the boot runs goes on, unknowing."""
    async with kernel.journal.pool.connection() as connection:
        alive = [kernel.boot_id]
        sql = "update instances set state = 'DEAD', dead_time = now() where boot_id = any ($1::uuid[])"
        await connection.execute(sql, alive)


async def states(kernel: Kernel, tenant: str = "acme") -> list[str]:
    """Of all actions of a tenant, oldest first."""
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select state from actions where tenant = $1 order by create_time, action_id", tenant
        )
    return [row["state"] for row in rows]


async def only_action(kernel: Kernel, tenant: str = "acme") -> Action:
    """The one action there is."""
    async with kernel.journal.pool.connection() as connection:
        ids = await connection.fetch("select action_id from actions where tenant = $1", tenant)
        assert 1 == len(ids)
        action = await actions.get(connection, tenant, str(ids[0]["action_id"]), full=True)
    assert action is not None
    return action


async def until(condition: Any, seconds: float = 5.0) -> None:
    """Waits for a condition that another task brings about."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def until_stored(is_stored: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """What another task or kernel writes rings no bell for a test, so rows are looked at."""
    async with asyncio.timeout(seconds):
        while not await is_stored():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def output(action: Action) -> Any:
    return None if action.output_json is None else json.loads(action.output_json)
