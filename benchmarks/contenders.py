"""The servers under load: how each is started, what is sent to it, and what must be in the store at the end."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from benchmarks import noop_app, store
from benchmarks.processes import Child, SharedPort
from placet.client import Client
from placet.testing.port import free_port
from placet.v1 import action_pb2, runtime_service_pb2

HERE = Path(__file__).resolve().parent
ECHO_BYTES = 64
TENANT = "benchmark"
ISSUER, AUDIENCE = "https://issuer.test", "placet"
TOKEN_SECONDS = 24 * 3600
# Where the load generator writes a number; what comes before is fresh for each load.
_KEY_NUMBER = "0" * 16
_PLACET = (
    "import sys; from placet_server.app import run; from placet_server.config import load_config; "
    "sys.exit(run(load_config()))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the load generator sends. `key_offsets` are where its number goes; none: the same bytes each time."""

    path: str
    message: bytes
    key_offsets: tuple[int, ...] = ()
    authorization_file: Path | None = None


class Contender:
    """Some server processes on one port. `dsn` is empty without a store."""

    def __init__(self, *, processes: int, folder: Path, name: str, dsn: str = "") -> None:
        self.name = name
        self.dsn = dsn
        self.folder = folder / name
        self.folder.mkdir()
        self.port = SharedPort()
        self.children: list[Child] = []
        self.calls_made = 0
        self.rows_before = 0
        self._processes = processes

    def start(self) -> None:
        for number in range(self._processes):
            child = Child(self._command(), self._environment(number), self.folder / f"log-{number}")
            self.children.append(child)
            # One after the other: the first one migrates.
            for port in self._ports(number):
                child.wait_until_listening(port)

    def stop(self) -> None:
        for child in self.children:
            child.stop()
        self.port.close()

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    def request(self) -> Request:
        raise NotImplementedError

    def flushes(self) -> tuple[float, int] | None:
        """Writes so far, and the flushes they shared; None where nobody counts."""
        return None

    async def problems(self) -> list[str]:
        """What contradicts that every call made has SUCCEEDED."""
        return [
            f"{self.name}: a server has ended\n{child.log()}" for child in self.children if not child.alive()
        ]

    def _ports(self, number: int) -> list[int]:
        """Where a process listens once it is ready."""
        return [self.port.number]

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self, number: int) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(HERE.parent)}

    async def _store_problems(self, table: str) -> list[str]:
        expected = {store.SUCCEEDED: self.rows_before + self.calls_made}
        actual = await store.count_states(self.dsn, table)
        return [] if expected == actual else [f"{self.name}: expected {expected}, the store has {actual}"]


class Echo(Contender):
    def request(self) -> Request:
        return Request(path="/placet.benchmark.Echo/Echo", message=b"x" * ECHO_BYTES)

    def _command(self) -> list[str]:
        return [sys.executable, str(HERE / "servers/echo.py"), str(self.port.number)]


class Naive(Contender):
    def request(self) -> Request:
        message, offset = invocation()
        return Request(path="/placet.benchmark.Naive/Execute", message=message, key_offsets=(offset,))

    async def problems(self) -> list[str]:
        return [*await super().problems(), *await self._store_problems("naive_actions")]

    def _command(self) -> list[str]:
        return [sys.executable, str(HERE / "servers/naive.py"), str(self.port.number), self.dsn]


class Placet(Contender):
    """The real server, all gates on, callers known by a JSON Web Token, telemetry as it comes.

    The metrics port serves what is counted anyway.
    """

    def __init__(self, *, processes: int, folder: Path, name: str, dsn: str = "") -> None:
        super().__init__(processes=processes, folder=folder, name=name, dsn=dsn)
        self._metrics_ports = [free_port() for _ in range(processes)]
        self._authorization_file = self.folder / "authorization"
        self._jwks_file = self.folder / "jwks.json"
        self._issue_token()

    def request(self) -> Request:
        message, offset = invocation()
        return Request(
            path="/placet.v1.RuntimeService/Execute",
            message=message,
            key_offsets=(offset,),
            authorization_file=self._authorization_file,
        )

    def flushes(self) -> tuple[float, int] | None:
        metrics = self.metrics()
        return metrics["placet_flush_items_sum"], int(metrics["placet_flush_items_count"])

    def metrics(self) -> defaultdict[str, float]:
        """Summed over the processes; 0 for what none of them tells."""
        found: defaultdict[str, float] = defaultdict(float)
        for port in self._metrics_ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                if line and not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    found[name] += float(value)
        return found

    def client(self) -> Client:
        return Client.connect(f"127.0.0.1:{self.port.number}", token=self.token)

    async def problems(self) -> list[str]:
        return [*await super().problems(), *await self._store_problems("actions")]

    def _ports(self, number: int) -> list[int]:
        return [*super()._ports(number), self._metrics_ports[number]]

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _PLACET]

    def _environment(self, number: int) -> dict[str, str]:
        return super()._environment(number) | {
            "PLACET_DSN": self.dsn,
            "PLACET_APP": "benchmarks.noop_app:app",
            "PLACET_PORT": str(self.port.number),
            "PLACET_REUSE_PORT": "true",
            "PLACET_HEALTH_PORT": "0",
            "PLACET_METRICS_PORT": str(self._metrics_ports[number]),
            "PLACET_JWT_ISSUER": ISSUER,
            "PLACET_JWT_AUDIENCE": AUDIENCE,
            "PLACET_JWT_JWKS_FILE": str(self._jwks_file),
        }

    def _issue_token(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {
            "kid": "1",
            "alg": "ES256",
            "use": "sig",
        }
        self._jwks_file.write_text(json.dumps({"keys": [public]}))
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": int(time.time()) + TOKEN_SECONDS,
            "tenant": TENANT,
            "sub": "agent-1",
            "kind": "agent",
            "roles": ["clerk"],
            "scope": "actions.execute actions.read operations.read operations.write policy.admit approvals.read",
        }
        voter = claims | {"sub": "voter-1", "kind": "user", "scope": "approvals.read approvals.decide"}
        self.token, self.voter_token = (
            jwt.encode(each, key, algorithm="ES256", headers={"kid": "1"}) for each in (claims, voter)
        )
        self._authorization_file.write_text(f"Bearer {self.token}")


def invocation() -> tuple[bytes, int]:
    """The request of one load, and where the number of the call goes. Both messages have the same layout."""
    key = _key()
    message = runtime_service_pb2.ExecuteRequest(invocation=_invocation(key)).SerializeToString()
    return message, _number_offset(message, key)


def submissions(count: int, queue: str) -> tuple[bytes, tuple[int, ...]]:
    """So many in one request, and where the number of the call goes."""
    keys = [_key() for _ in range(count)]
    message = runtime_service_pb2.SubmitBatchRequest(
        items=[runtime_service_pb2.SubmitRequest(invocation=_invocation(key), queue=queue) for key in keys]
    ).SerializeToString()
    return message, tuple(_number_offset(message, key) for key in keys)


def _key() -> str:
    return secrets.token_hex(8) + _KEY_NUMBER


def _invocation(key: str) -> action_pb2.Invocation:
    return action_pb2.Invocation(
        capability=noop_app.CAPABILITY,
        input_json=noop_app.INPUT_JSON,
        options=action_pb2.InvocationOptions(idempotency_key=key),
    )


def _number_offset(message: bytes, key: str) -> int:
    return message.index(key.encode()) + len(key) - len(_KEY_NUMBER)
