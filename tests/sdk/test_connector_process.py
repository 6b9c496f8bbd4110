"""`placet connect` as a process: what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from placet.v1 import connector_service_pb2 as pb
from placet.v1.connector_service_pb2_grpc import ConnectorServiceStub
from tests.cli.support import COMMAND, clean_environment, first_line
from tests.sdk.dialler import Signer

APP = """
import time
import placet

app = placet.App("desk")


@app.tool("desk.wait", "read")
def wait(context: placet.SyncContext, seconds: float = 0.0) -> str:
    time.sleep(seconds)
    return context.action_id
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(APP, encoding="utf-8")
    return tmp_path


@contextmanager
def _connector(folder: Path, *options: str) -> Iterator[tuple[dict[str, Any], subprocess.Popen[bytes]]]:
    command = [*COMMAND, "connect", "--app", "desk:app", "--port", "0", "--json", *options]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
    ) as process:
        try:
            line = first_line(process)
            assert line, process.stderr.read().decode() if process.stderr else ""
            yield json.loads(line)["ready"], process
        finally:
            if process.poll() is None:
                process.kill()


def _start(signer: Signer, boot_id: str, seconds: float) -> pb.InvokeRequest:
    start = pb.InvokeStart(
        action_id="0199b0c0-0000-7000-8000-000000000001",
        attempt=1,
        capability="desk.wait",
        version="1",
        input_json=json.dumps({"seconds": seconds}),
        boot_id=boot_id,
    )
    start.time_left.seconds = 30
    start.caller.tenant = "acme"
    start.invocation_token = signer.token(start)
    return pb.InvokeRequest(start=start)


def test_a_process_that_is_told_to_end_finishes_what_runs(folder: Path) -> None:
    signer = Signer()
    (folder / "keys.json").write_bytes(signer.jwks())
    with _connector(folder, "--jwks", "keys.json") as (ready, process):
        assert ["desk.wait@1"] == ready["capabilities"]
        with grpc.insecure_channel(ready["target"]) as channel:
            described = ConnectorServiceStub(channel).Describe(pb.DescribeRequest(), timeout=20)
            assert ready["boot_id"] == described.boot_id
            health: Any = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest(service="placet.v1.ConnectorService")
            assert health_pb2.HealthCheckResponse.SERVING == health.Check(asked, timeout=20).status

            def frames() -> Iterator[pb.InvokeRequest]:
                yield _start(signer, ready["boot_id"], 0.5)
                yield pb.InvokeRequest(proceed=pb.InvokeProceed())

            answers = ConnectorServiceStub(channel).Invoke(frames(), timeout=20)
            assert "accepted" == next(answers).WhichOneof("frame")
            process.send_signal(signal.SIGTERM)
            assert "result" == next(answers).WhichOneof("frame")
            assert [] == list(answers)
        assert 0 == process.wait(20)
