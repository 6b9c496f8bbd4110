"""Streams against bare grpc.aio: chunks per second, how soon the first one comes, and a crowd that watches one action.

    python benchmarks/streams.py [--quick] [--json] [--watchers 1000]

In one run, in turns; the client is the same for both and in Python. docs/performance.md says how to read it. Exits with
1 if a chunk was lost or came twice.
"""

from __future__ import annotations

import os
import sys

# The folder of this file has a `queue` that is not Python's.
sys.path.pop(0)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import uvloop

from benchmarks import noop_app, store
from benchmarks.bench import say
from benchmarks.contenders import Contender, Echo, Placet
from benchmarks.processes import StartFailed, resident_bytes
from placet.v1 import action_pb2, event_pb2, runtime_service_pb2
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.embedded.error import EmbeddedError

STREAMS = (1, 16)
FIRST_CHUNK_CALLS = 100
CONNECTIONS = 8
# Twelve seconds, most of them for all to come.
CROWD_CHUNKS = 60
CROWD_SECONDS_MAX = 11.0
CALL_SECONDS = 120.0


class Client:
    """Some connections to one contender, each stream on the next one."""

    def __init__(self, contender: Contender) -> None:
        self._channels = [
            grpc.aio.insecure_channel(
                f"127.0.0.1:{contender.port.number}", options=[("grpc.use_local_subchannel_pool", 1)]
            )
            for _ in range(CONNECTIONS)
        ]
        self._next = 0

    async def chunks(self, count: int) -> tuple[int, float]:
        """How many came, and after how many seconds the first did."""
        raise NotImplementedError

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        self._next += 1
        return self._channels[self._next % CONNECTIONS]


class BareClient(Client):
    async def chunks(self, count: int) -> tuple[int, float]:
        begin, first, came = time.perf_counter(), 0.0, 0
        stream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel().unary_stream(
            "/placet.benchmark.Echo/Stream"
        )
        call = stream(b"%d" % count, timeout=CALL_SECONDS)
        async for _ in call:
            first = first or time.perf_counter() - begin
            came += 1
        return came, first


class OurClient(Client):
    def __init__(self, contender: Placet) -> None:
        super().__init__(contender)
        self._metadata = (("authorization", f"Bearer {contender.token}"),)
        self._stubs = [RuntimeServiceStub(channel) for channel in self._channels]

    async def chunks(self, count: int) -> tuple[int, float]:
        begin, first, came = time.perf_counter(), 0.0, 0
        async for event in self._executed(noop_app.STREAM, count):
            if event.HasField("chunk"):
                first = first or time.perf_counter() - begin
                came += 1
        return came, first

    async def start(self, chunks: int) -> str:
        """An action that speaks slowly; its id."""
        invocation = action_pb2.Invocation(
            capability=noop_app.TICK,
            input_json=json.dumps({"chunks": chunks}),
            options=action_pb2.InvocationOptions(on_caller_gone=action_pb2.ON_CALLER_GONE_DETACH),
        )
        request = runtime_service_pb2.SubmitRequest(invocation=invocation)
        answer = await self._stubs[0].Submit(request, metadata=self._metadata, timeout=CALL_SECONDS)
        return str(answer.action.action_id)

    async def watched(self, action_id: str) -> int:
        """The chunks that one watcher gets, from the begin to the end."""
        self._next += 1
        request = runtime_service_pb2.WatchActionRequest(action_id=action_id)
        stub, came = self._stubs[self._next % CONNECTIONS], 0
        async for answer in stub.WatchAction(request, metadata=self._metadata, timeout=CALL_SECONDS):
            came += answer.event.HasField("chunk")
        return came

    async def _executed(self, capability: str, count: int) -> Any:
        self._next += 1
        invocation = action_pb2.Invocation(capability=capability, input_json=json.dumps({"chunks": count}))
        request = runtime_service_pb2.ExecuteStreamRequest(invocation=invocation)
        stub = self._stubs[self._next % CONNECTIONS]
        async for answer in stub.ExecuteStream(request, metadata=self._metadata, timeout=CALL_SECONDS):
            event: event_pb2.ActionEvent = answer.event
            yield event


class Streams:
    def __init__(self, arguments: argparse.Namespace, bare: Contender, ours: Placet) -> None:
        self._arguments = arguments
        self._ours = ours
        self._bare = bare
        self._clients: dict[str, Client] = {}
        self.problems: list[str] = []

    async def measured(self) -> dict[str, Any]:
        self._clients = {"bare": BareClient(self._bare), "placet": OurClient(self._ours)}
        report: dict[str, Any] = {
            "chunks_per_second": await self._throughput(),
            "first_chunk_p50_ms": await self._first_chunk(),
            "watchers": await self._crowd(),
        }
        for client in self._clients.values():
            await client.close()
        rates = report["chunks_per_second"]
        report["ratio_to_bare"] = {
            str(streams): _ratio(rates["placet"][streams], rates["bare"][streams]) for streams in STREAMS
        }
        return report | {"problems": self.problems}

    async def _throughput(self) -> dict[str, dict[int, list[float]]]:
        rates: dict[str, dict[int, list[float]]] = {name: {n: [] for n in STREAMS} for name in self._clients}
        for _ in range(self._arguments.repetitions):
            for streams in STREAMS:
                for name, client in self._clients.items():
                    count = self._arguments.chunks
                    begin = time.perf_counter()
                    came = await asyncio.gather(*(client.chunks(count) for _ in range(streams)))
                    rate = streams * count / (time.perf_counter() - begin)
                    rates[name][streams].append(round(rate))
                    if {got for got, _ in came} != {count}:
                        self.problems.append(f"{name}: chunks lost or doubled: {came}")
                    say(f"{name:7} {streams:3} streams {rate:8.0f} chunks/s")
        return rates

    async def _first_chunk(self) -> dict[str, float]:
        times: dict[str, list[float]] = {name: [] for name in self._clients}
        for _ in range(FIRST_CHUNK_CALLS):
            for name, client in self._clients.items():
                times[name].append((await client.chunks(1))[1])
        return {name: round(statistics.median(found) * 1000, 2) for name, found in times.items()}

    async def _crowd(self) -> dict[str, Any]:
        client, watchers = self._clients["placet"], self._arguments.watchers
        assert isinstance(client, OurClient)
        before = resident_bytes(self._ours.pids)
        begin = time.perf_counter()
        action_id = await client.start(CROWD_CHUNKS)
        watching = [asyncio.ensure_future(client.watched(action_id)) for _ in range(watchers)]
        await self._all_watch(watchers)
        after = resident_bytes(self._ours.pids)
        came = await asyncio.gather(*watching)
        seconds = time.perf_counter() - begin
        if set(came) != {CROWD_CHUNKS}:
            self.problems.append(f"watchers got {sorted(set(came))} chunks, expected {CROWD_CHUNKS}")
        return {
            "count": watchers,
            "chunks_told_per_second": round(sum(came) / seconds),
            "seconds": round(seconds, 2),
            "bytes_per_watcher": round((after - before) / watchers),
        }

    async def _all_watch(self, watchers: int) -> None:
        deadline = time.monotonic() + CROWD_SECONDS_MAX
        while (await asyncio.to_thread(self._ours.metrics))["placet_watches_in_flight"] < watchers:
            if time.monotonic() > deadline:
                self.problems.append(f"not all of {watchers} watched before the action was over")
                return
            await asyncio.sleep(0.05)


def _ratio(ours: list[float], bare: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, bare, strict=True)), 3)


def main() -> int:
    arguments = _arguments()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as name,
            ExitStack() as stack,
        ):
            folder = Path(name)
            # The account of Postgres reads through it.
            folder.chmod(0o755)
            postgres = store.start(folder, arguments.programs)
            stack.callback(postgres.stop)
            dsn = asyncio.run(store.create_database(postgres.dsn, "streams"))
            bare = Echo(processes=1, folder=folder, name="bare")
            ours = Placet(processes=1, folder=folder, name="placet", dsn=dsn)
            for contender in (bare, ours):
                stack.callback(contender.stop)
                contender.start()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    report = runner.run(Streams(arguments, bare, ours).measured())
                except grpc.aio.AioRpcError as error:
                    print(f"{error}\n{ours.children[0].log()}", file=sys.stderr)
                    return 1
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 2
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 1 if report["problems"] else 0


def _text(report: dict[str, Any]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in report.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="one short repetition, 100 watchers")
    parser.add_argument("--chunks", type=int, default=3000, help="of each stream")
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.chunks, arguments.watchers, arguments.repetitions = 300, 100, 1
    return arguments


if __name__ == "__main__":
    sys.exit(main())
