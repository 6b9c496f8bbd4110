"""The processes of the demo: a Postgres that outlives the server's crash, a payment provider, and the server.

All belong to the demo: they end with it, however it ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from placet import Client
from placet.sample.agent import LOCAL_MODEL
from placet_server.cli import health
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.embedded.error import EmbeddedError
from placet_server.embedded.server import EmbeddedPostgres

START_SECONDS = 30.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
PEOPLE = ("anna", "ben", "carl")
ROLE = "finance"
APPS = ("placet.sample.shop:app", "placet.sample.agent:app")
LEASE_SECONDS = 1.0
DRAIN_SECONDS = 2.0
LOG_BYTES_MAX = 4000
_PREFIXES = ("PLACET_", "OTEL_")
# The provider is on loopback: a proxy of the environment must not see it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Stage:
    """Enter to set it up, leave to clear it away. Raises Complaint if it cannot be set up."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder: Path
        self._log: IO[bytes]
        self._postgres: EmbeddedPostgres
        self._provider: subprocess.Popen[bytes]
        self._provider_address = ""
        self._server: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="placet-demo-")))
            self._log = stack.enter_context((self._folder / "server.log").open("wb"))
            self._provider = _spawn([sys.executable, "-m", "placet.sample.provider"], _environment({}), None)
            stack.callback(_end, self._provider)
            try:
                self._postgres = stack.enter_context(EmbeddedPostgres())
            except EmbeddedError as error:
                raise Complaint(str(error), ExitCode.UNAVAILABLE) from None
            port = _line(self._provider, START_SECONDS).decode().strip()
            self._provider_address = f"http://127.0.0.1:{port}"
            stack.callback(self._end_server)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def token_file(self) -> Path:
        return self._folder / "token"

    @property
    def server_pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def start_server(self) -> str:
        """Waits until it is ready; the second time on the same port. Returns host:port."""
        self._server = _spawn(
            [sys.executable, "-m", "placet_server.cli.main", "serve", "--until-stdin-ends", "--json"],
            self._server_environment(),
            self._log,
        )
        line = _line(self._server, START_SECONDS)
        ready = json.loads(line).get("ready") if line else None
        if ready is None:
            raise Complaint(f"the server did not start:\n{self._log_tail()}", ExitCode.UNAVAILABLE)
        self._port = int(ready["target"].rpartition(":")[2])
        self._wait_until_ready(ready["health_target"])
        return str(ready["target"])

    def kill_server(self) -> None:
        """As `kill -9` does."""
        assert self._server is not None
        self._server.send_signal(signal.SIGKILL)
        self._server.wait(STOP_SECONDS)

    def client(self, who: str = "") -> Client:
        """The developer's, or that of somebody else by name. Closed with the stage."""
        file = self.token_file.with_name(f"{self.token_file.name}.{who}") if who else self.token_file
        content = json.loads(file.read_text(encoding="utf-8"))
        client = Client.connect(content["target"], token=content["token"])
        self._stack.callback(client.close)
        return client

    def counts(self) -> dict[str, int]:
        """Effects that happened, as the provider counts them."""
        counts: dict[str, int] = self._ask("/counts")
        return counts

    def hold_answers(self) -> None:
        """From now on effects happen, but nobody is told."""
        self._ask("/hold", {"phase": "after"})

    def release_answers(self) -> None:
        self._ask("/release", {})

    def held(self) -> int:
        """How many effects have happened and are not answered."""
        return int(self._ask("/held")["held"])

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self._provider_address + path, data, headers)
        with _opener.open(request, timeout=5) as response:
            return json.load(response)

    def _server_environment(self) -> dict[str, str]:
        return _environment(
            {
                "PLACET_DSN": self._postgres.dsn,
                "PLACET_DSN_DURABILITY": "ephemeral",
                "PLACET_APP": ",".join(APPS),
                "PLACET_MODELS_ALLOWED": LOCAL_MODEL,
                "PLACET_SAMPLE_PROVIDER": self._provider_address,
                "PLACET_IDENTITY_DEV": "true",
                "PLACET_DEV_PEOPLE": ",".join(f"{name}:{ROLE}" for name in PEOPLE),
                "PLACET_TOKEN_FILE": str(self.token_file),
                "PLACET_PORT": str(self._port),
                "PLACET_HEALTH_PORT": "0",
                "PLACET_LEASE_SECONDS": str(LEASE_SECONDS),
                # When the demo is killed Postgres goes, too: what runs then waits in vain for its end to be stored.
                "PLACET_DRAIN_SECONDS": str(DRAIN_SECONDS),
                "PLACET_LOG_LEVEL": "warning",
            }
        )

    def _wait_until_ready(self, health_target: str) -> None:
        end = time.monotonic() + START_SECONDS
        while "SERVING" != health.check(health_target)["ready"]:
            if time.monotonic() > end:
                raise Complaint(f"the server is not ready:\n{self._log_tail()}", ExitCode.UNAVAILABLE)
            time.sleep(POLL_SECONDS)

    def _end_server(self) -> None:
        if self._server is not None:
            _end(self._server)

    def _log_tail(self) -> str:
        text = (self._folder / "server.log").read_bytes()[-LOG_BYTES_MAX:]
        return text.decode(errors="replace").strip() or "(it said nothing)"


def _environment(own: dict[str, str]) -> dict[str, str]:
    """Ours, without what would set up another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)} | own


def _spawn(command: list[str], environment: dict[str, str], log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches the demo alone; the end of its input ends it."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log if log is not None else subprocess.DEVNULL,
        start_new_session=True,
    )


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """The first line of its output; empty if it ended, or said nothing in that time."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], seconds)
    return process.stdout.readline() if readable else b""


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        process.stdout.close()
