"""A server in a process of its own, two tenants' tokens for it, and proof that an attack left no trace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet.v1.approval_service_pb2_grpc import ApprovalServiceStub
from placet.v1.catalog_service_pb2_grpc import CatalogServiceStub
from placet.v1.operations_service_pb2_grpc import OperationsServiceStub
from placet.v1.policy_service_pb2_grpc import PolicyServiceStub
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet.v1.session_service_pb2_grpc import SessionServiceStub
from placet_server.store.connection import Connection
from tests.rpc.keys import AUDIENCE, ISSUER, Issuer
from tests.rpc.support import bearer
from tests.toolchain import ROOT

PROGRAM = (
    "import json, sys; from placet_server.app import run; from placet_server.config import load_config; "
    "sys.exit(run(load_config(), lambda s: print(json.dumps([s.target, s.health_target]), flush=True)))"
)
# What an attack may leave in the log, however often it is repeated.
LOG_LINES_MAX = 5
QUIET_SECONDS = 20.0
SCOPES = (
    "actions.execute actions.read actions.cancel catalog.read catalog.admit "
    "operations.read operations.write policy.read policy.admit recovery.read recovery.write "
    "approvals.read approvals.decide sessions.use"
)
# Work of earlier tests that this server still has to do. What waits for a time far off stays as it is.
UNDER_WAY = """
select
    (select count(*) from queue_ready)
    + (select count(*) from queue_delayed where ready_time < now() + interval '10 minutes')
    + (select count(*) from actions where queue is not null and state = 'RUNNING')
"""
TABLES = """
select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace
and relname not in ('instances', 'queue_counts', 'retention_walk')
"""
Traces = Mapping[str, tuple[int, int]]
STREAMS = frozenset(
    {"AskStream", "ExecuteStream", "WatchAction", "WatchEvents", "WatchApprovals", "ResumeActionStream"}
)


@dataclass(kw_only=True)
class Served:
    target: str
    health_target: str
    dsn: str
    log_file: Path
    issuer: Issuer
    process: subprocess.Popen[str]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.target.rpartition(":")
        return host, int(port)

    def token(self, tenant: str | None = "acme", subject: str | None = "alice", **claims: Any) -> str:
        """A claim of None is left out."""
        usual: dict[str, Any] = {"tenant": tenant, "sub": subject, "scope": SCOPES, "exp": 4_000_000_000}
        return self.issuer.token(**(usual | claims))

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @asynccontextmanager
    async def client(self, tenant: str = "acme", subject: str = "alice") -> AsyncIterator[Client]:
        async with grpc.aio.insecure_channel(self.target) as channel:
            yield Client(channel, self.token(tenant, subject))

    async def quiet(self, connection: Connection) -> None:
        """Waits until nothing that was submitted is under way."""
        async with asyncio.timeout(QUIET_SECONDS):
            while await connection.fetchval(UNDER_WAY):
                await connection.execute("select pg_sleep(0.05)")

    async def traces(self, connection: Connection) -> Traces:
        """Rows of every table, and a sum over their contents. Heartbeats, counts and where the cleaner walks are no
        trace.
        """
        names = [row["relname"] for row in await connection.fetch(TABLES)]
        looked = " union all ".join(
            f"select '{name}', count(*), coalesce(sum(hashtext(t::text)::bigint), 0)::bigint from \"{name}\" t"
            for name in names
        )
        return {row[0]: (row[1], row[2]) for row in await connection.fetch(looked)}

    @asynccontextmanager
    async def unharmed(self, log_lines_max: int = LOG_LINES_MAX) -> AsyncIterator[None]:
        """What happens inside changes no row, hardly logs, and leaves a healthy server that answers."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await self.quiet(connection)
            rows, lines = await self.traces(connection), self.log().count("\n")
            yield
            now = await self.traces(connection)
        finally:
            await connection.close()
        changed = {name: (before, now[name]) for name, before in rows.items() if before != now[name]}
        assert not changed, changed
        said = self.log().splitlines()[lines:]
        assert len(said) <= log_lines_max, said
        assert not any("incident" in line for line in said), said
        await self.answers()

    async def answers_strangers(self) -> None:
        """A new connection is served; no row changes."""
        async with self.client() as client:
            who = await client.call("GetCaller", pb.GetCallerRequest(), seconds=10)
        assert "alice" == who.caller.subject

    async def answers(self) -> None:
        """Healthy, and a normal call works."""
        async with grpc.aio.insecure_channel(self.health_target) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            for service in ("live", "ready", "storage"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
                assert health_pb2.HealthCheckResponse.SERVING == answer.status, service
        async with self.client() as client:
            done = await client.execute("hostile.echo", '{"text":"still here"}')
        assert '"still here"' == done.action.output_json


class Client:
    """One tenant's member, over a channel of its own."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self.channel = channel
        self.metadata = bearer(token)
        self.runtime: Any = RuntimeServiceStub(channel)
        self.catalog: Any = CatalogServiceStub(channel)
        self._others = (
            OperationsServiceStub(channel),
            PolicyServiceStub(channel),
            RecoveryServiceStub(channel),
            SessionServiceStub(channel),
            ApprovalServiceStub(channel),
        )

    async def call(self, rpc: str, request: Any, *, seconds: float | None = 20) -> Any:
        """The response, or all of a stream's. Raises AioRpcError."""
        stub: Any = next(s for s in (self.runtime, self.catalog, *self._others) if hasattr(s, rpc))
        call = getattr(stub, rpc)(request, metadata=self.metadata, timeout=seconds)
        if rpc in STREAMS:
            return [response async for response in call]
        return await call

    async def execute(self, capability: str, input_json: str, *, key: str = "") -> pb.ExecuteResponse:
        options = action_pb2.InvocationOptions(idempotency_key=key)
        invocation = action_pb2.Invocation(capability=capability, input_json=input_json, options=options)
        response: pb.ExecuteResponse = await self.call("Execute", pb.ExecuteRequest(invocation=invocation))
        return response


@contextmanager
def served(dsn: str, folder: Path, **settings: str) -> Iterator[Served]:
    """Runs until the block ends, with these settings beside the usual ones."""
    issuer = Issuer()
    keys = folder / "keys.json"
    keys.write_text(issuer.document())
    variables = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(place for place in sys.path if place)]),
        "PLACET_DSN": dsn,
        # The Postgres of tests runs without fsync.
        "PLACET_DSN_DURABILITY": "ephemeral",
        "PLACET_APP": "tests.hostile.shop:app",
        "PLACET_PORT": "0",
        "PLACET_HEALTH_PORT": "0",
        "PLACET_JWT_ISSUER": ISSUER,
        "PLACET_JWT_AUDIENCE": AUDIENCE,
        "PLACET_JWT_JWKS_FILE": str(keys),
        **settings,
    }
    log_file = folder / "log"
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log_file.read_text()
        target, health_target = json.loads(line)
        yield Served(
            target=target,
            health_target=health_target,
            dsn=dsn,
            log_file=log_file,
            issuer=issuer,
            process=process,
        )
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(20), log_file.read_text()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
