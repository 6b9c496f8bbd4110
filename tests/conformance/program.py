"""A client program of some language, spoken to in lines of JSON; every language's program speaks alike.

In: `{"call": 1, "rpc": "Execute", "request": {…}, "metadata": {…}, "seconds": 2.5, "times": 40}` makes a call with the
generated stubs, so many times one after the other; `request` is the message in proto JSON, `seconds` the deadline, 0
for none. With `"path": "/a.B/C", "raw": "<base64>"` instead of `rpc` and `request` it sends bytes to a path.
`{"cancel": 1}` cancels a call.

Out: `{"call": 1, "answers": [{…}, …]}` with what the program saw each time, as in Answer.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from placet.v1 import action_pb2, event_pb2, outcome_pb2

ANSWER_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One call as a program sees it: status, details, and of the metadata what is Placet's.

    `infos` are domain, reason, metadata; `violations` field, description, reason; `quota` subject, description.
    """

    code: str
    message: str
    details: int
    infos: tuple[tuple[str, str, Mapping[str, str]], ...]
    outcomes: tuple[outcome_pb2.Outcome, ...]
    retry_seconds: tuple[float, ...]
    violations: tuple[tuple[str, ...], ...]
    quota: tuple[tuple[str, ...], ...]
    headers: Mapping[str, str]
    trailers: Mapping[str, str]
    responses: tuple[Any, ...]

    @property
    def reason(self) -> str:
        """Of the one ErrorInfo, which is ours."""
        assert ["placet.dev"] == [domain for domain, _, _ in self.infos], self
        return self.infos[0][1]

    @property
    def variables(self) -> Mapping[str, str]:
        """The metadata of the one ErrorInfo."""
        return self.infos[0][2]

    @property
    def outcome(self) -> outcome_pb2.Outcome:
        (only,) = self.outcomes
        return only

    @property
    def action(self) -> action_pb2.Action:
        """Of the one response."""
        (only,) = self.responses
        return json_format.ParseDict(only["action"], action_pb2.Action())

    @property
    def events(self) -> list[event_pb2.ActionEvent]:
        """Of a stream's responses."""
        return [
            json_format.ParseDict(response["event"], event_pb2.ActionEvent()) for response in self.responses
        ]


class Call:
    """A call under way."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number
        self.done: Future[list[Answer]] = Future()

    def answers(self) -> list[Answer]:
        """Waits for the end."""
        return self.done.result(ANSWER_SECONDS)

    def answer(self) -> Answer:
        (only,) = self.answers()
        return only

    def cancel(self) -> None:
        self._program.send({"cancel": self._number})


class Program:
    """Runs until closed. Calls may be made from any thread."""

    def __init__(self, command: Sequence[str], target: str, token: str = "") -> None:
        self._process = subprocess.Popen(
            [*command, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self._token = token
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, rpc: str, request: Mapping[str, Any] | None = None, **how: Any) -> Answer:
        return self.start(rpc, request, **how).answer()

    def start(
        self,
        rpc: str,
        request: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        times: int = 1,
    ) -> Call:
        """The token goes with every call; `metadata` may replace it."""
        return self._start({"rpc": rpc, "request": request or {}}, metadata, seconds, times)

    def call_path(self, path: str, raw: bytes = b"", *, metadata: Mapping[str, str] | None = None) -> Answer:
        order = {"path": path, "raw": base64.b64encode(raw).decode()}
        return self._start(order, metadata, 30.0, 1).answer()

    def send(self, order: Mapping[str, Any]) -> None:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _start(
        self, order: dict[str, Any], metadata: Mapping[str, str] | None, seconds: float, times: int
    ) -> Call:
        if metadata is None:
            metadata = {}
        if "authorization" not in metadata and self._token:
            metadata = {**metadata, "authorization": f"Bearer {self._token}"}
        call = Call(self, len(self._calls) + 1)
        number = len(self._calls) + 1
        self._calls[number] = call
        self.send(order | {"call": number, "metadata": metadata, "seconds": seconds, "times": times})
        return call

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self._calls[told["call"]].done.set_result(_answers(told["answers"]))
        for call in self._calls.values():
            if not call.done.done():
                call.done.set_exception(EOFError("the program ended"))


def _answers(told: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """One that is as the one before is not read again."""
    read: list[Answer] = []
    for number, each in enumerate(told):
        read.append(read[-1] if number and each == told[number - 1] else _answer(each))
    return read


def _answer(told: Mapping[str, Any]) -> Answer:
    return Answer(
        code=told["code"],
        message=told["message"],
        details=told["details"],
        infos=tuple((info["domain"], info["reason"], info["metadata"]) for info in told["infos"]),
        outcomes=tuple(json_format.ParseDict(each, outcome_pb2.Outcome()) for each in told["outcomes"]),
        retry_seconds=tuple(told["retry_seconds"]),
        violations=tuple(tuple(each) for each in told["violations"]),
        quota=tuple(tuple(each) for each in told["quota"]),
        headers=told["headers"],
        trailers=told["trailers"],
        responses=tuple(told["responses"]),
    )
