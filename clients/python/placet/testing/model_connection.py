"""A server that answers requests of one conversation after the other, from a script; how a wire says it is the wire's.
HTTP/1.1 by hand, so that a stream can be cut off and held up at any byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType
from typing import Any, ClassVar, Self

from placet.testing.model_script import (
    Drop,
    Fail,
    FailInStream,
    Say,
    Script,
    Stall,
    Step,
    Truncate,
    turns_of,
)

BODY_BYTES_MAX = 32 * 2**20
KEY = "test-key"


@dataclass(frozen=True, slots=True)
class Request:
    """One that came. `turn` from 1; `number`: how often exactly these bytes had come before, and this time."""

    path: str
    headers: dict[str, str]
    body: bytes
    turn: int
    number: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class _Heard:
    """A request as it was read from its connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Reply:
    """What is answered; `stream`: as chunks, cut off after so many bytes, or paused there."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    stream: bool = False
    end: int | None = None
    clean: bool = True
    pause: tuple[int, float] | None = None


class ModelServer:
    """One of the wires below. Everything that came is in `requests`."""

    wire: ClassVar[str]

    def __init__(self, script: Script, *, key: str = KEY, port: int = 0) -> None:
        """`script`: for any model, or by the model's name."""
        self._scripts = script if isinstance(script, Mapping) else {"": script}
        for steps in self._scripts.values():
            turns_of(steps)
        self._key = key
        self._port = port
        self._server: asyncio.Server | None = None
        self._seen: Counter[str] = Counter()
        self._connections: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self._stopping = asyncio.Event()
        self.requests: list[Request] = []

    @property
    def port(self) -> int:
        return self._port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._prefix}"

    def requests_of(self, turn: int) -> list[Request]:
        return [request for request in self.requests if request.turn == turn]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Connections are lost, also those that wait."""
        if self._server is not None:
            self._stopping.set()
            self._server.close()
            for writer, ended in list(self._connections.items()):
                writer.transport.abort()
                await ended.wait()
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # What a wire has of its own.

    _prefix: ClassVar[str] = ""
    _path: ClassVar[str]

    def _is_allowed(self, headers: Mapping[str, str]) -> bool:
        raise NotImplementedError

    def _turn_of(self, body: Mapping[str, Any]) -> int:
        raise NotImplementedError

    def _problem(self, body: Mapping[str, Any]) -> str:
        """What a real one refuses; "" if nothing."""
        raise NotImplementedError

    def _error(self, status: int, message: str, code: str) -> Any:
        raise NotImplementedError

    def _events(self, said: Say, body: Mapping[str, Any], turn: int) -> Iterator[bytes]:
        raise NotImplementedError

    def _whole(self, said: Say, body: Mapping[str, Any], turn: int) -> Any:
        raise NotImplementedError

    def _stream_error(self, failure: FailInStream) -> bytes:
        raise NotImplementedError

    # One connection.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = self._connections[writer] = asyncio.Event()
        try:
            while (heard := await _read(reader)) is not None:
                reply = self._reply(heard)
                if reply is None or not await self._write(writer, reply):
                    writer.transport.abort()
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            writer.transport.abort()
        finally:
            writer.close()
            del self._connections[writer]
            ended.set()

    def _reply(self, heard: _Heard) -> _Reply | None:
        if heard.method == "GET" and heard.path == "/recorded":
            return _json(200, [_recorded(request) for request in self.requests])
        if heard.method != "POST" or heard.path.partition("?")[0] != self._prefix + self._path:
            return _json(404, self._error(404, f"no {heard.method} {heard.path}", ""))
        if not self._is_allowed(heard.headers):
            return _json(401, self._error(401, "this is not the key", "invalid_api_key"))
        body = json.loads(heard.body)
        turn = self._turn_of(body)
        digest = sha256(heard.body).hexdigest()
        self._seen[digest] += 1
        request = Request(heard.path, heard.headers, heard.body, turn, self._seen[digest])
        self.requests.append(request)
        if problem := self._problem(body):
            return _json(400, self._error(400, problem, ""))
        return self._scripted(request, body)

    def _scripted(self, request: Request, body: Mapping[str, Any]) -> _Reply | None:
        model = str(body.get("model", ""))
        steps = self._scripts.get(model, self._scripts.get(""))
        if steps is None:
            return _json(404, self._error(404, f"no model {model}", "model_not_found"))
        turns = turns_of(steps)
        if request.turn > len(turns):
            return _json(400, self._error(400, f"the script has no turn {request.turn}", ""))
        before, said = turns[request.turn - 1]
        step: Step = before[request.number - 1] if request.number <= len(before) else said
        return self._answer(step, said, body, request.turn)

    def _answer(self, step: Step, said: Say, body: Mapping[str, Any], turn: int) -> _Reply | None:
        match step:
            case Drop():
                return None
            case Fail():
                headers = {"retry-after": step.retry_after} if step.retry_after else {}
                told = self._error(step.status, f"status {step.status}", step.code)
                return _json(step.status, told if step.body is None else step.body, headers)
            case FailInStream():
                first = next(self._events(said, body, turn))
                return _Reply(200, first + self._stream_error(step), stream=True)
            case _:
                pass
        if not body.get("stream"):
            return _json(200, self._whole(said, body, turn))
        events = b"".join(self._events(said, body, turn))
        match step:
            case Truncate():
                return _Reply(200, events, stream=True, end=step.after_bytes, clean=step.clean)
            case Stall():
                return _Reply(200, events, stream=True, pause=(step.after_bytes, step.seconds))
            case _:
                return _Reply(200, events, stream=True)

    async def _write(self, writer: asyncio.StreamWriter, reply: _Reply) -> bool:
        """Whether the connection is still good."""
        headers = {"content-type": "text/event-stream", "cache-control": "no-cache"} if reply.stream else {}
        headers |= reply.headers
        length = (
            {"transfer-encoding": "chunked"} if reply.stream else {"content-length": str(len(reply.body))}
        )
        lines = [f"{name}: {value}" for name, value in (headers | length).items()]
        writer.write("\r\n".join([f"HTTP/1.1 {reply.status} Scripted", *lines, "", ""]).encode("latin-1"))
        if not reply.stream:
            writer.write(reply.body)
            await writer.drain()
            return True
        async for chunk in self._chunks(reply):
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        if reply.end is not None and not reply.clean:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _chunks(self, reply: _Reply) -> AsyncIterator[bytes]:
        if reply.pause is None:
            for chunk in (reply.body[: reply.end], b""):
                if chunk:
                    yield chunk
            return
        at, seconds = reply.pause
        if reply.body[:at]:
            yield reply.body[:at]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        if reply.body[at:]:
            yield reply.body[at:]


def _json(status: int, body: Any, headers: Mapping[str, str] | None = None) -> _Reply:
    text = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return _Reply(status, text, {"content-type": "application/json", **(headers or {})})


def _recorded(request: Request) -> dict[str, Any]:
    return {"turn": request.turn, "number": request.number, "body": request.json}


async def _read(reader: asyncio.StreamReader) -> _Heard | None:
    """None at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= BODY_BYTES_MAX:
        raise ValueError("too long")
    return _Heard(method, path, headers, await reader.readexactly(length))
