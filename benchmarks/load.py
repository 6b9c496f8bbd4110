"""The load generator: built once with the machine's Go, one process per measured time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contenders import Contender
from benchmarks.plan import Case, Plan

SOURCE = Path(__file__).resolve().parent / "loadgen"
# Reconnecting so often balances eight connections over two processes all but surely.
_RECONNECTS_MAX = 100
_SLACK_SECONDS = 60.0


class Unfit(Exception):
    """This machine cannot run the benchmark; the text says what to install."""


class LoadFailed(Exception):
    """The load generator gave up."""


def require_tools() -> None:
    if shutil.which("h2load") is None:
        raise Unfit("h2load is missing: install nghttp2-client (Debian, Ubuntu) or nghttp2")
    if shutil.which("go") is None:
        raise Unfit("go is missing: the load generator in benchmarks/loadgen needs Go 1.26 to be built")


def build(folder: Path) -> Path:
    binary = folder / "loadgen"
    built = subprocess.run(
        ["go", "build", "-o", str(binary), "."], cwd=SOURCE, capture_output=True, text=True
    )
    if built.returncode != 0:
        raise Unfit(f"the load generator cannot be built:\n{built.stderr}")
    return binary


class Load:
    """One run of the load generator against one contender. `sample` is called where the measured time begins and
    where it ends."""

    def __init__(self, binary: Path, contender: Contender, case: Case, plan: Plan) -> None:
        self._contender = contender
        self._request = contender.request()
        self._case = case
        self._binary = binary
        self._plan = plan

    def run(self, sample: Callable[[], Any]) -> tuple[Any, Any, dict[str, Any]]:
        with tempfile.NamedTemporaryFile(dir=self._contender.folder) as body:
            body.write(self._request.message)
            body.flush()
            process = subprocess.Popen(
                self._command(body.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            guard = threading.Timer(self._seconds_max(), process.kill)
            guard.start()
            try:
                return self._driven(process, sample)
            finally:
                guard.cancel()
                process.kill()
                process.communicate()

    def _driven(
        self, process: subprocess.Popen[str], sample: Callable[[], Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        self._connect(process)
        self._expect(process, "begin")
        begin = sample()
        self._expect(process, "end")
        end = sample()
        report = self._line(process)
        if process.wait(self._seconds_max()) != 0:
            raise self._failure(process, "the load generator failed")
        return begin, end, json.loads(report)

    def _connect(self, process: subprocess.Popen[str]) -> None:
        """Until the connections are spread evenly: chance is not what is measured."""
        for _ in range(_RECONNECTS_MAX):
            self._expect(process, "connected")
            if self._is_balanced():
                self._say(process, "go")
                return
            self._say(process, "again")
        raise LoadFailed(f"{self._contender.name}: connections do not spread over the processes")

    def _is_balanced(self) -> bool:
        if len(self._contender.children) == 1 or self._case.connections == 1:
            return True
        port = self._contender.port.number
        counts = [child.connection_count(port) for child in self._contender.children]
        return max(counts) - min(counts) <= 1

    def _command(self, body: str) -> list[str]:
        request, plan = self._request, self._plan
        command = [str(self._binary), "-target", f"127.0.0.1:{self._contender.port.number}"]
        command += ["-path", request.path, "-body", body]
        command += ["-connections", str(self._case.connections), "-calls", str(self._case.level)]
        command += ["-warmup", f"{plan.warmup_seconds}s", "-measured", f"{plan.measured_seconds}s"]
        if request.key_offsets:
            command += ["-key-offsets", ",".join(map(str, request.key_offsets))]
        if request.authorization_file is not None:
            command += ["-authorization-file", str(request.authorization_file)]
        return command

    def _seconds_max(self) -> float:
        return self._plan.warmup_seconds + self._plan.measured_seconds + _SLACK_SECONDS

    def _expect(self, process: subprocess.Popen[str], word: str) -> None:
        line = self._line(process)
        if line != word:
            raise self._failure(process, f"the load generator said {line!r} instead of {word!r}")

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().rstrip("\n")

    def _say(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{word}\n")

    def _failure(self, process: subprocess.Popen[str], problem: str) -> LoadFailed:
        process.kill()
        assert process.stderr is not None
        logs = "\n".join(child.log() for child in self._contender.children)
        return LoadFailed(f"{self._contender.name}: {problem}\n{process.stderr.read()}\n{logs}")


def h2load_rate(contender: Contender, case: Case, plan: Plan, folder: Path) -> float:
    """Calls per second by h2load, to check ours against; for bodies that need not change."""
    body = folder / "h2load-body"
    message = contender.request().message
    body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    command = ["h2load", "-t", "1", "-c", str(case.connections), "-m", str(case.level // case.connections)]
    command += ["-D", str(max(1, round(plan.measured_seconds))), "-d", str(body)]
    command += ["--warm-up-time", str(max(1, round(plan.warmup_seconds)))]
    for header in ("content-type: application/grpc", "te: trailers", "grpc-timeout: 30S"):
        command += ["-H", header]
    address = f"http://127.0.0.1:{contender.port.number}{contender.request().path}"
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=_SLACK_SECONDS)
    rate = re.search(r"([\d.]+) req/s", done.stdout)
    if rate is None:
        raise LoadFailed(f"h2load: {done.stdout}{done.stderr}")
    return float(rate[1])
