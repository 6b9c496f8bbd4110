"""ConnectorService: what is asked, whether it may be, and the frames of each stream."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from concurrent.futures import Executor
from typing import Any

import grpc
import grpc.aio

from placet.app import App, Tool
from placet.connector import finding
from placet.connector.attempt import Attempt
from placet.connector.attempt_table import AttemptTable, Key
from placet.connector.frame import CURSOR_BYTES_MAX, PAYLOAD_BYTES_MAX
from placet.connector.outlet import Outlet
from placet.connector.refusal import Refused
from placet.connector.token import Said, TokenCheck, Use, input_digest
from placet.supervisor import Supervisor
from placet.v1 import connector_service_pb2 as pb

START_SECONDS = 10.0
SETTLE_SECONDS = 60.0
LOOKUP_SECONDS = 30.0
LOOKUPS_MAX = 32
TIME_LEFT_SECONDS_MAX = 86_400

log = logging.getLogger("placet.connector")

Context = grpc.aio.ServicerContext[Any, Any]


class Service:
    """Belongs to one event loop. Attempts run in the supervisor's tasks, as they outlive their streams."""

    def __init__(
        self,
        app: App,
        *,
        boot_id: str,
        concurrency_max: int,
        tokens: TokenCheck,
        tenants: frozenset[str],
        table: AttemptTable,
        handler_threads: Executor,
        lookup_threads: Executor,
        supervisor: Supervisor,
    ) -> None:
        self._app = app
        self._tools = {(tool.name, tool.version): tool for tool in app.tools}
        self._boot_id = boot_id
        self._concurrency_max = concurrency_max
        self._tokens = tokens
        self._tenants = tenants
        self._table = table
        self._handler_threads = handler_threads
        self._lookup_threads = lookup_threads
        self._supervisor = supervisor
        self._lookups = 0
        self.is_draining = False

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        manifest = self._app.manifest()
        # Where it is found, Placet knows.
        manifest.ClearField("local")
        return pb.DescribeResponse(
            manifest=manifest,
            boot_id=self._boot_id,
            concurrency_max=self._concurrency_max,
            draining=self.is_draining,
            lookups=finding.lookups_of(self._app.tools),
        )

    async def Invoke(self, requests: object, context: Context) -> None:
        """Read and written by hand: what is read decides what becomes of the attempt, whatever is being written."""
        try:
            start = await _first(context)
            key, attempt, outlet = await self._begin(start)
        except Refused as refused:
            await context.abort(refused.code, refused.text)
        try:
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen(context, key, attempt, outlet))
                async for frame in outlet.frames():
                    await context.write(frame)
                if outlet.is_answered:
                    await asyncio.wait([listening], timeout=SETTLE_SECONDS)
                listening.cancel()
        finally:
            if attempt is not None:
                attempt.detach(outlet)
        if not outlet.is_answered:
            await context.abort(grpc.StatusCode.ABORTED, "the attempt was not begun: proceed did not come")

    async def Lookup(self, request: pb.LookupRequest, context: Context) -> pb.LookupResponse:
        try:
            _check(request, request.provider_cursor_json)
            tool = await self._checked(request, "lookup")
            if (found := finding.known(self._table, request)) is not None:
                return found
            found = finding.no_lookup() if tool.lookup is None else await self._ask(tool, request, context)
            return finding.response_over(self._table, request, found)
        except Refused as refused:
            await context.abort(refused.code, refused.text)

    async def _ask(self, tool: Tool, request: pb.LookupRequest, context: Context) -> pb.LookupResponse:
        assert tool.lookup is not None
        if self._lookups >= LOOKUPS_MAX:
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{LOOKUPS_MAX} lookups are under way")
        # None without a deadline, whatever its stub says.
        seconds = min(LOOKUP_SECONDS, context.time_remaining() or LOOKUP_SECONDS)
        self._lookups += 1
        try:
            return await finding.ask(tool.lookup, request, self._lookup_threads, seconds)
        finally:
            self._lookups -= 1

    async def _begin(self, start: pb.InvokeStart) -> tuple[Key, Attempt | None, Outlet]:
        """A new attempt, or another stream of one that is known. Raises Refused, and then nothing was begun."""
        _check(start, start.provider_cursor_json)
        tool = await self._checked(start, "invoke")
        if start.boot_id != self._boot_id:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, "this process has begun since: describe it again"
            )
        key = Key(start.action_id, start.attempt)
        work = f"{start.capability}@{start.version} {input_digest(start.input_json)}"
        # From here to the table nothing is awaited, so that one of two equal starts is first.
        known = self._table.find(key, work)
        outlet = Outlet()
        if isinstance(known, pb.InvokeResponse):
            outlet.finish(known)
            return key, None, outlet
        attempt = known or self._new(key, work, start, tool)
        attempt.attach(outlet)
        return key, attempt, outlet

    def _new(self, key: Key, work: str, start: pb.InvokeStart, tool: Tool) -> Attempt:
        if self.is_draining:
            raise Refused(grpc.StatusCode.UNAVAILABLE, "this process is draining")
        if not self._table.has_room(self._concurrency_max):
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._concurrency_max} attempts run here")
        attempt = Attempt(start, tool, self._handler_threads)
        self._table.add(key, work, attempt)
        self._supervisor.start(self._live(key, attempt))
        return attempt

    async def _live(self, key: Key, attempt: Attempt) -> None:
        if not await attempt.may_begin():
            self._table.drop(key)
            attempt.give_up()
            return
        answer = await attempt.run()
        self._table.end(key, answer)
        attempt.finish(answer)

    async def _listen(self, context: Context, key: Key, attempt: Attempt | None, outlet: Outlet) -> None:
        """Until the answer is settled, or nothing more comes."""
        while (request := await context.read()) is not grpc.aio.EOF:
            match request.WhichOneof("frame"):
                case "settle_ack" if outlet.is_answered:
                    self._table.settle(key)
                    return
                case "effect_ack":
                    outlet.answered("effect", 1)
                case "checkpoint_ack":
                    outlet.answered("checkpoint", request.checkpoint_ack.number)
                case "child_result":
                    ended = request.child_result
                    outlet.answered("child", ended.number, ended)
                case "proceed" if attempt is not None:
                    attempt.proceed()
                case "cancel" if attempt is not None:
                    attempt.stop()
                case other:
                    log.debug("a frame that says nothing here: %s", other)
        outlet.hears = False
        if attempt is not None:
            attempt.check_hearing()

    async def _checked(self, said: Said, use: Use) -> Tool:
        """What is to be done, and that Placet says so, for a tenant that may. Raises Refused."""
        tool = self._tools.get((said.capability, said.version))
        if tool is None:
            text = f"{said.capability}@{said.version} is not served here"
            raise Refused(grpc.StatusCode.NOT_FOUND, text)
        await self._tokens.check(said, use)
        if self._tenants and said.caller.tenant not in self._tenants:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "tokens of this tenant do not count here")
        return tool


async def _first(context: Context) -> pb.InvokeStart:
    """Raises Refused."""
    try:
        async with asyncio.timeout(START_SECONDS):
            request = await context.read()
    except TimeoutError:
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, "start did not come") from None
    if request is grpc.aio.EOF or request.WhichOneof("frame") != "start":
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "start comes first")
    start: pb.InvokeStart = request.start
    if not 0 <= start.time_left.seconds <= TIME_LEFT_SECONDS_MAX:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"time_left is at most {TIME_LEFT_SECONDS_MAX} s")
    if not start.time_left.seconds and start.time_left.nanos <= 0:
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, "no time is left")
    return start


def _check(said: Said, cursor_json: str) -> None:
    """The bounds that what follows relies on. Raises Refused."""
    problem = None
    if len(said.input_json.encode()) > PAYLOAD_BYTES_MAX:
        problem = f"input_json has more than {PAYLOAD_BYTES_MAX} bytes"
    elif len(cursor_json.encode()) > CURSOR_BYTES_MAX or not _is_json(cursor_json or "null"):
        problem = f"provider_cursor_json is not JSON of at most {CURSOR_BYTES_MAX} bytes"
    elif said.attempt < 1:
        problem = "attempt is from 1"
    elif not _is_uuid(said.action_id):
        problem = "action_id is not a UUID"
    if problem is not None:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, problem)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
