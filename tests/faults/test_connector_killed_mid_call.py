"""SIGKILL to a connector while its effects are under way at the provider: one effect, or AMBIGUOUS and said so."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import placet
from placet.testing.port import free_port
from placet.v1.capability_pb2 import EFFECT_CLASS_COMPOSED
from placet_server.connector.settings import ConnectorSettings
from placet_server.core.execution.finding import Committed
from placet_server.core.execution.lookup import Question, look_up
from placet_server.core.kernel import Kernel
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.model.errors import PlacetError
from placet_server.rpc.convert.capability import manifest_of
from tests.cli.support import COMMAND, clean_environment, first_line
from tests.core.kernels import ALICE, open_kernel, read, run
from tests.faults import till
from tests.faults.processes import PROVIDER_VARIABLE, ROOT, Provider
from tests.postgres import Database

CALLED = ("refund", "refund_unmarked", "charge", "charge_unmarked", "send", "send_unmarked")
HELD = {
    "refund": "SUCCEEDED",
    "refund_unmarked": "SUCCEEDED",
    "charge": "CONNECTOR_UNAVAILABLE",
    "charge_unmarked": "CONNECTOR_UNAVAILABLE",
    "send": "CONNECTOR_UNAVAILABLE",
    "send_unmarked": "CONNECTOR_UNAVAILABLE",
}


@contextmanager
def connector(port: int, keys: Path, provider: Provider) -> Iterator[subprocess.Popen[bytes]]:
    command = [*COMMAND, "connect", "--app", "tests.faults.till:app", "--jwks", str(keys), "--json"]
    variables = {PROVIDER_VARIABLE: provider.address, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, "--issuer", "test", "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**clean_environment(), **variables},
    ) as process:
        try:
            assert first_line(process), "the connector did not start"
            yield process
        finally:
            if process.poll() is None:
                process.kill()


async def admit_till(kernel: Kernel, port: int) -> None:
    message = till.app.manifest()
    message.connector.target = f"127.0.0.1:{port}"
    message.connector.plaintext = True
    message.ClearField("local")
    # What is composed runs nowhere but in the server.
    kept = [each for each in message.capabilities if each.contract.effect != EFFECT_CLASS_COMPOSED]
    del message.capabilities[:]
    message.capabilities.extend(kept)
    result = await kernel.catalog.admit(ALICE, manifest_of(message))
    assert () == result.problems


async def called(kernel: Kernel, name: str) -> str:
    """SUCCEEDED, or why the effect is in doubt."""
    try:
        await run(kernel, f"till.{name}", {"order": name}, name, time_left_seconds=60.0)
    except EffectAmbiguous as error:
        return error.cause
    except PlacetError as error:
        return error.reason
    return "SUCCEEDED"


def near_app() -> placet.App:
    app = placet.App("near")

    @app.tool("near.read", "read")
    async def handler() -> None: ...

    return app


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_every_class_keeps_its_promise(
    phase: str, database: Database, provider: Provider, tmp_path: Path
) -> None:
    port, keys = free_port(), tmp_path / "keys.json"
    os.environ.pop(PROVIDER_VARIABLE, None)
    async with open_kernel(database.dsn, near_app(), connectors=ConnectorSettings()) as kernel:
        routes: Any = kernel.engine.handlers.connectors
        keys.write_text(routes._signer.key_set)
        with connector(port, keys, provider) as process:
            await admit_till(kernel, port)
            provider.hold(phase)
            calls = [asyncio.ensure_future(called(kernel, name)) for name in CALLED]
            await provider.until_held(len(CALLED), calls)
            process.kill()
            process.wait()
        provider.release()
        with connector(port, keys, provider):
            assert HELD == dict(zip(CALLED, await asyncio.gather(*calls), strict=True))
            # What the provider held happens all the same, once for a key that it knows.
            expected = {"refunds": 2, "charges": 2, "messages": 2}
            await asyncio.to_thread(provider.wait_counts, expected)
            await found_there(kernel)


async def found_there(kernel: Kernel) -> None:
    """The new process asks the author's lookup, as its own table knows nothing of the attempt."""
    async with kernel.journal.pool.connection() as connection:
        sql = "select action_id::text from actions where capability = 'till.charge'"
        action = await read(kernel, await connection.fetchval(sql))
    capability = (await kernel.catalog.resolve("acme", "till.charge")).capability
    tool = kernel.engine.handlers.find("till.charge", "1", "acme")
    assert tool is not None
    found = await look_up(kernel.engine, tool, Question(action=action, capability=capability, seconds=20.0))
    assert isinstance(found, Committed), found
    assert "charge" in json.dumps(str(found))
