"""One attempt behind a connector: start, accepted, proceed, and what then happens.

It has a task of its own, as it outlives the run that waits for it: a result that comes after the attempt was given up
still ends what is AMBIGUOUS, and the connector is told what is durable. Whatever ends it before `proceed` was written
proves that nothing was done; after that only an answer is one. Frames are taken one by one, each once the one before is
durable, so that a connector that says more than the store can hold waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import AioRpcError

from placet.context import Json
from placet.failure import Cancelled, Failure
from placet.v1 import connector_service_pb2 as pb
from placet_server.connector.frames import UndeclaredError, chunk_of, failure_of
from placet_server.connector.link import Link, LinkSlot
from placet_server.core.execution.attempt import CURSOR_BYTES_MAX, Attempt, LeaseLost
from placet_server.core.execution.child import StepCall, check_call
from placet_server.core.execution.connectors import ConnectorFailure, OutputText
from placet_server.core.execution.ending import Ending, Raised
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.invoke import read_failure, read_output
from placet_server.core.execution.run import settle_late
from placet_server.model.action import Action
from placet_server.model.errors import PlacetError
from placet_server.model.json_text import canonicalize
from placet_server.rpc.convert.outcome import outcome_message
from placet_server.rpc.convert.time import duration, seconds

Answer: TypeAlias = OutputText | Failure | UndeclaredError | LeaseLost

CLOSE_SECONDS = 2.0
RETRY_SECONDS = 1.0
UNHEARD_MAX = 256

_log = logging.getLogger(__name__)
# How a connector refuses, and what the caller is told. Not its own words: it is not known what they name.
_REFUSALS = {
    grpc.StatusCode.UNAVAILABLE: ("not_reached", "it did not answer, or takes nothing now."),
    grpc.StatusCode.UNAUTHENTICATED: ("token_refused", "it does not believe this server's tokens."),
    grpc.StatusCode.FAILED_PRECONDITION: ("other_process", "another process has taken its place."),
    grpc.StatusCode.RESOURCE_EXHAUSTED: ("full", "it runs as much as it can."),
    grpc.StatusCode.NOT_FOUND: ("not_served", "it does not serve this version."),
}


class Breach(Exception):
    """A frame that may not come, or not now. The text is for the log."""


class Conversation:
    """Belongs to one event loop, and holds a slot of the link. `answer` is always set in the end.

    `entered`: the author's code may have been."""

    def __init__(
        self, engine: Engine, link: Link, slot: LinkSlot, attempt: Attempt, start: pb.InvokeRequest
    ) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.entered = False
        self.refused_by = ""
        self._engine = engine
        self._link = link
        self._slot = slot
        self._attempt = attempt
        self._start = start
        self._writing = asyncio.Lock()
        self._is_abandoned = False
        self._is_given_up = False
        self._is_over = asyncio.Event()
        self._settled: Action | None = None
        self._checkpoints = 0
        self._items = 0
        self._unheard = 0
        self._calls = 0
        self._children: set[asyncio.Task[None]] = set()
        self._call = link.stub.Invoke(
            metadata=tuple(attempt.run.work.trace.items()), timeout=self._seconds_max()
        )
        attempt.on_settled = self._note_settled

    async def run(self) -> None:
        """To the end of the stream. Everything that goes wrong becomes the answer."""
        try:
            async with asyncio.timeout(self._seconds_max()):
                await self._begin()
                self._resolve(await self._listen())
                await self._finish()
        except asyncio.CancelledError:
            self._lose("closed", "the server has closed it")
            raise
        except AioRpcError as error:
            self._refuse(error)
        except (Breach, DecodeError, ValueError, PlacetError) as error:
            self._lose("breach", f"a breach of the protocol: {error}")
        except (TimeoutError, asyncio.InvalidStateError) as error:
            self._lose("not_accepted" if not self.entered else "lost", type(error).__name__)
        except LeaseLost as lost:
            self._resolve(lost)
        finally:
            self._lose("lost", "it ended")
            self._stop_children()
            self._call.cancel()
            self._slot.end()

    async def stop(self, cause: str, grace_seconds: float) -> None:
        """Ask it to stop soon."""
        self._stop_children()
        cancel = pb.InvokeCancel(cause=cause, grace=duration(grace_seconds))
        await self._try_to_write(pb.InvokeRequest(cancel=cancel))

    def abandon(self) -> None:
        """It is not begun any more. Only before it was entered."""
        assert not self.entered
        self._is_abandoned = True
        self._call.cancel()

    def give_up(self) -> None:
        """Nobody waits for the answer any more, but it still counts."""
        self._is_given_up = True

    def _seconds_max(self) -> float:
        settings = self._link.settings
        return self._attempt.time_left() + settings.grace_seconds + settings.late_seconds

    def _note_settled(self, settled: Action | None) -> None:
        self._settled = settled
        self._is_over.set()

    async def _begin(self) -> None:
        accept_seconds = min(self._link.settings.accept_seconds, self._attempt.time_left())
        async with asyncio.timeout(accept_seconds):
            await self._write(self._start)
            frame = await self._read()
        kind = None if frame is None else frame.WhichOneof("frame")
        if frame is not None and kind != "accepted":
            # Whoever says this has not waited to be told to begin.
            self.entered = True
            raise Breach(f"{kind} before accepted")
        if frame is None:
            raise Breach("ended without accepted")
        # Nothing is awaited between this look and the mark.
        if self._is_abandoned:
            raise Breach("abandoned")
        self.entered = True
        run = self._attempt.run
        run.holdings = (*run.holdings, self._slot)
        await self._write(pb.InvokeRequest(proceed=pb.InvokeProceed()))

    async def _listen(self) -> Answer:
        while True:
            frame = await self._read()
            if frame is None:
                raise Breach("ended without an answer")
            answer = await self._take(frame)
            if answer is not None:
                return answer

    async def _take(self, frame: pb.InvokeResponse) -> Answer | None:
        match frame.WhichOneof("frame"):
            case "checkpoint":
                await self._checkpoint(frame.checkpoint)
            case "effect_mark":
                await self._mark()
            case "chunk":
                self._next_item(frame.chunk.number)
                await self._say(self._attempt.chunk(chunk_of(frame.chunk)))
            case "progress":
                self._next_item(frame.progress.number)
                fraction = frame.progress.fraction if frame.progress.HasField("fraction") else None
                await self._say(self._attempt.progress(frame.progress.message, fraction))
            case "child_call":
                self._start_child(frame.child_call)
            case "result":
                return await self._result(frame.result)
            case "failure":
                return failure_of(frame.failure)
            case kind:
                raise Breach(f"{kind or 'nothing known'} after accepted")
        return None

    async def _checkpoint(self, frame: pb.Checkpoint) -> None:
        self._checkpoints += 1
        if frame.number != self._checkpoints:
            raise Breach(f"checkpoint {frame.number} instead of {self._checkpoints}")
        cursor = json_of(frame.provider_cursor_json)
        await self._attempt.checkpoint(frame.provider_operation, cursor)
        await self._write(pb.InvokeRequest(checkpoint_ack=pb.CheckpointAck(number=frame.number)))

    async def _mark(self) -> None:
        await self._attempt.effect()
        await self._write(pb.InvokeRequest(effect_ack=pb.EffectAck()))

    def _start_child(self, frame: pb.ChildCall) -> None:
        """It goes on beside what else is said. How many there may be is the attempt's to say."""
        self._calls += 1
        if frame.number != self._calls:
            raise Breach(f"child call {frame.number} instead of {self._calls}")
        timeout_seconds = seconds(frame.timeout) if frame.HasField("timeout") else None
        scopes = frozenset(frame.scopes.scopes) if frame.HasField("scopes") else None
        call = StepCall(
            step=frame.step,
            capability=frame.capability,
            input_json=frame.input_json,
            version=frame.version,
            timeout_seconds=timeout_seconds,
            scopes=scopes,
        )
        check_call(call)
        task = self._engine.supervisor.start(self._child(frame.number, call))
        self._children.add(task)
        task.add_done_callback(self._children.discard)

    async def _child(self, number: int, call: StepCall) -> None:
        try:
            end = await self._attempt.child(call)
        except Cancelled:
            # The attempt may not go on, which the connector hears by a cancel, or by the end of the stream.
            return
        result = pb.ChildResult(number=number, action_id=end.outcome.action_id)
        if end.output_json is None:
            result.outcome.CopyFrom(outcome_message(end.outcome))
        else:
            result.output_json = end.output_json
        await self._try_to_write(pb.InvokeRequest(child_result=result))

    def _stop_children(self) -> None:
        """What has begun is the action's to cancel; nobody waits for it here any more."""
        for task in self._children:
            task.cancel()

    def _next_item(self, number: int) -> None:
        self._items += 1
        if number != self._items:
            raise Breach(f"chunk or progress {number} instead of {self._items}")

    async def _say(self, saying: Coroutine[Any, Any, None]) -> None:
        """What is said after the attempt was given up is heard by nobody, and not for ever."""
        try:
            await saying
        except LeaseLost:
            if not self._is_given_up:
                raise
            self._unheard += 1
            if self._unheard > UNHEARD_MAX:
                raise Breach("it goes on though it was given up") from None

    async def _result(self, frame: pb.InvokeResult) -> Answer:
        known = self._attempt.action.provider_operation or ""
        if frame.provider_operation not in ("", known) and not self._is_given_up:
            await self._attempt.checkpoint(frame.provider_operation, None)
        return OutputText(frame.output_json)

    async def _finish(self) -> None:
        """The connector may forget its answer once that is durable; not where somebody else's verdict is."""
        await self._is_over.wait()
        if self._is_given_up:
            # However long the store takes, and this stream lasts.
            settling = self._engine.supervisor.start(
                settle_late(self._engine, self._attempt, self._late_ending())
            )
            self._settled = await asyncio.shield(settling)
        settled = self._settled
        if settled is not None and settled.lease_id == self._attempt.action.lease_id:
            await self._write(pb.InvokeRequest(settle_ack=pb.SettleAck()))
        await self._call.done_writing()
        async with asyncio.timeout(CLOSE_SECONDS):
            extra = await self._read()
        if extra is not None:
            _log.warning(
                "%s: %s after the answer counts for nothing", self._name(), extra.WhichOneof("frame")
            )

    def _late_ending(self) -> Ending:
        answer = self.answer.result()
        _log.info("%s: an answer after it was given up", self._name())
        match answer:
            case OutputText():
                return read_output(self._attempt.run.work.capability, answer)
            case Failure():
                return read_failure(self._attempt, answer)
            case _:
                return Raised()

    async def _read(self) -> pb.InvokeResponse | None:
        """None: the stream has ended well."""
        frame = await self._call.read()
        return None if frame is grpc.aio.EOF else frame

    async def _write(self, frame: pb.InvokeRequest) -> None:
        async with self._writing:
            await self._call.write(frame)

    async def _try_to_write(self, frame: pb.InvokeRequest) -> None:
        try:
            await self._write(frame)
        except (AioRpcError, asyncio.InvalidStateError):
            # It has ended, and the answer says so.
            return

    def _refuse(self, error: AioRpcError) -> None:
        code = error.code()
        if not self.entered:
            self.refused_by = code.name
            if code in _REFUSALS:
                failure_code, told = _REFUSALS[code]
                _log.warning("%s is refused: %s %s", self._name(), code.name, (error.details() or "")[:300])
                self._resolve(not_done(failure_code, told))
                self._link.suspect()
                return
        self._lose("lost", f"{code.name} {error.details() or ''}")

    def _lose(self, code: str, why: str) -> None:
        """There is no answer, and there will be none."""
        if self.answer.done():
            return
        _log.warning("%s: no answer: %s", self._name(), why[:300])
        self._link.suspect()
        if not self.entered:
            self._resolve(not_done(code, "it did not begin the attempt."))
            return
        told = "the connection was lost before an answer." if code != "breach" else "its answer was none."
        self._resolve(ConnectorFailure(code, told, effect="unknown"))

    def _resolve(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def _name(self) -> str:
        action = self._attempt.action
        return f"{action.capability} at {self._link.address.target}, action {action.action_id}"


def not_done(code: str, message: str) -> ConnectorFailure:
    return ConnectorFailure(code, message, effect="not_done", retry_delay=RETRY_SECONDS)


def json_of(text: str) -> Json:
    """None for none. Raises PlacetError for what is no JSON."""
    return cast(Json, canonicalize(text, bytes_max=CURSOR_BYTES_MAX).value) if text else None
