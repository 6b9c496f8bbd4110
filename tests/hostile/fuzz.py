"""Every RPC under fire for minutes: `python -m tests.hostile.fuzz --minutes 10 --seed 1 --json result.json`.

A server of its own over a Postgres of its own, on which two tenants have things of every kind, and one client. What
each call says follows from the seed and the call's number alone, but for ids, which the server makes. Ends with 1
if anything was wrong: see `fuzz_judge`, and `Fuzz.watch` for the server itself.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc

from placet.v1 import runtime_service_pb2 as pb
from tests import postgres
from tests.hostile.dice import METHODS, Dice
from tests.hostile.fuzz_judge import SECONDS_MAX, Answer, Tally, faults_of
from tests.hostile.fuzz_world import SETTINGS, Caller, World, furnish_world, write_callbacks
from tests.hostile.served import Served, served

AT_ONCE = 6
GROWTH_MIB_MAX = 300
TROUBLE_LENGTH_MAX = 8000
# Two loggers may say it: handlers raise here what they do not declare, and gRPC of unary calls whose caller has left.
TROUBLE = re.compile(
    r"incident| (ERROR|CRITICAL) +(?!placet_server\.core\.execution\.invoke|grpc\._cython\.cygrpc)"
)
# These wait for something to happen, or go on for ever.
WAITING = [
    "Execute",
    "ExecuteStream",
    "WaitAction",
    "WatchAction",
    "ResumeAction",
    "ResumeActionStream",
    "WatchEvents",
    "WatchApprovals",
]
# Nobody else is to be held up by policies and manifests that come by dice.
OF_DICE_ALONE = ("AdmitPolicySet", "RollBackPolicySet", "AdmitManifest", "WithdrawCapability")


@dataclass(frozen=True, kw_only=True)
class Call:
    number: int
    path: str
    request: bytes
    metadata: Any
    caller: Caller
    timeout: float
    leaves: bool
    may_be_cut_off: bool


class Fuzz:
    def __init__(self, server: Served, world: World, seed: str) -> None:
        self._server = server
        self._world = world
        self._seed = seed
        self.tallies = {path: Tally() for path in METHODS}
        self.troubles: list[str] = []
        # Answers with words that their reader alone may read: the others' would be seen, too.
        self.own = 0
        self.memory_mib = [_memory_mib(server)]

    def call(self, number: int) -> Call:
        """The one of this number."""
        paths = list(METHODS)
        Random(f"{self._seed}:{number // len(paths)}").shuffle(paths)
        path = paths[number % len(paths)]
        name = path.rpartition("/")[2]
        dice = Dice(f"{self._seed}:{number}", self._world.known)
        caller = dice.random.choice(
            self._world.dice_callers if name in OF_DICE_ALONE else self._world.callers
        )
        good = self._world.good(path, caller.tenant, dice) if dice.chance(0.7) else None
        untouched = good is not None and dice.chance(0.3)
        request = (good if good and untouched else dice.request(path, good)).SerializeToString()
        if dice.chance(0.2):
            request = dice.raw(request)
        metadata: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {caller.token}")]
        if dice.chance(0.2):
            metadata = dice.metadata(dice.random.choice((*[caller.token] * 8, *self._world.bad_tokens)))
        waits = name in WAITING
        hurries = dice.chance(0.03)
        timeout = dice.random.choice((0.05, 0.1, 1.0)) if waits else SECONDS_MAX + 5
        leaves = dice.chance(0.02)
        return Call(
            number=number,
            path=path,
            request=request,
            metadata=metadata,
            caller=caller,
            timeout=dice.random.choice((0.001, 0.005, 0.02)) if hurries else timeout,
            leaves=leaves,
            may_be_cut_off=waits or hurries or leaves,
        )

    async def run(self, numbers: Iterator[int]) -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self.watch())
            senders = [group.create_task(self._send(numbers)) for _ in range(AT_ONCE)]
            await asyncio.wait(senders)
            watching.cancel()

    async def _send(self, numbers: Iterator[int]) -> None:
        async with grpc.aio.insecure_channel(self._server.target) as channel:
            for number in numbers:
                if self._server.process.poll() is not None:
                    return
                call = self.call(number)
                answer = await _answer(channel, call)
                tally = self.tallies[call.path]
                tally.count(answer)
                self.own += any(word in answer.said for word in call.caller.own)
                for what in faults_of(
                    answer, call.request, call.caller.secrets, may_be_cut_off=call.may_be_cut_off
                ):
                    tally.fault(number, what, call.request, call.metadata)

    async def watch(self) -> None:
        """The process, its log, its memory, and whether it still answers in time."""
        read = len(self._server.log())
        async with self._server.client() as client:
            while True:
                await asyncio.sleep(1)
                if self._server.process.poll() is not None:
                    self.troubles.append(f"the server has ended: {self._server.log()[-3000:]}")
                    return
                self.memory_mib.append(_memory_mib(self._server))
                log = self._server.log()
                if TROUBLE.search(log, read):
                    self.troubles.append(log[read:][:TROUBLE_LENGTH_MAX])
                read = len(log)
                begun = time.monotonic()
                try:
                    await client.call("GetCaller", pb.GetCallerRequest(), seconds=SECONDS_MAX)
                except grpc.aio.AioRpcError as error:
                    after = time.monotonic() - begun
                    self.troubles.append(f"GetCaller ended {error.code().name} after {after:.1f} s")

    async def end(self) -> None:
        if self._server.process.poll() is None:
            try:
                await self._server.answers()
            except Exception as error:
                self.troubles.append(f"not healthy afterwards: {error!r}")
        if len(self.memory_mib) > 10 and not self.own:
            self.troubles.append("nobody has seen even the own words")
        growth = max(self.memory_mib) - self.memory_mib[0]
        if growth > GROWTH_MIB_MAX:
            self.troubles.append(f"memory grew by {growth} MiB")

    @property
    def faults(self) -> int:
        return len(self.troubles) + sum(tally.faults.total() for tally in self.tallies.values())


async def _answer(channel: grpc.aio.Channel, call: Call) -> Answer:
    method: Any = channel.unary_stream(call.path)
    begun = time.monotonic()
    said: list[bytes] = []
    error = None
    try:
        answers = method(call.request, metadata=call.metadata, timeout=call.timeout)
        if call.leaves:
            asyncio.get_running_loop().call_later(0.005, answers.cancel)
        async for raw in answers:
            said.append(raw)
    except grpc.aio.AioRpcError as refused:
        error = refused
    except asyncio.CancelledError:
        if not call.leaves:
            raise
    return Answer(said=b"".join(said), error=error, seconds=time.monotonic() - begun)


def _memory_mib(server: Served) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


def _numbers(seconds: float) -> Iterator[int]:
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


async def _fuzz(server: Served, options: argparse.Namespace) -> Fuzz:
    world = await furnish_world(server)
    fuzz = Fuzz(server, world, options.seed)
    await fuzz.run(_numbers(options.minutes * 60) if options.call is None else iter([options.call]))
    await fuzz.end()
    return fuzz


def _tell(fuzz: Fuzz, options: argparse.Namespace) -> None:
    calls = sum(tally.calls for tally in fuzz.tallies.values())
    for path, tally in fuzz.tallies.items():
        statuses = " ".join(f"{name}={count}" for name, count in tally.statuses.most_common())
        print(f"{path[11:]:42} {tally.calls:6} {tally.slowest:6.2f} s  {statuses}")
        for fault, count in tally.faults.items():
            print(f"    FAULT ×{count} {fault}")
    for trouble in fuzz.troubles[:20]:
        print(f"TROUBLE {trouble}")
    first, peak = fuzz.memory_mib[0], max(fuzz.memory_mib)
    print(f"seed {options.seed}: {calls} calls, {fuzz.own} answers with own words, {fuzz.faults} faults")
    print(f"memory: {first} MiB at first, at most {peak} MiB")
    if options.json:
        told = {
            "seed": options.seed,
            "minutes": options.minutes,
            "calls": calls,
            "faults": fuzz.faults,
            "answers_with_own_words": fuzz.own,
            "memory_mib": fuzz.memory_mib[:: max(1, len(fuzz.memory_mib) // 60)],
            "memory_mib_peak": peak,
            "troubles": fuzz.troubles,
            "rpcs": {path: tally.as_json() for path, tally in fuzz.tallies.items()},
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--call", type=int, help="the call of this number alone")
    parser.add_argument("--log", type=Path, help="where to keep the server's log")
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres.cluster("embedded") as cluster:
        callbacks = {"PLACET_CALLBACK_FILE": str(write_callbacks(Path(folder)))}
        with (
            cluster.database() as database,
            served(database.dsn, Path(folder), **SETTINGS, **callbacks) as server,
        ):
            fuzz = asyncio.run(_fuzz(server, options))
            _tell(fuzz, options)
            if options.log:
                options.log.write_text(server.log())
    return 1 if fuzz.faults else 0


if __name__ == "__main__":
    sys.exit(main())
