"""One attempt in this process: the author's code, and what it says while it runs.

The code is entered once Placet has said `proceed`; an attempt that waits for it in vain was none. From there it
outlives its streams. When the last one is lost the handler of anything but a READ goes on: stopping it half-way helps
nobody, and Placet asks later what it came to. But what waits for Placet's word, before the provider is touched, stops
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any

from placet.app import Tool
from placet.connector import frame
from placet.connector.outlet import Kind, Numbered, Outlet, Question
from placet.context import CallerInfo, DelegateInfo, Json, Standing
from placet.failure import CallFailed, Cancelled, Failure, gathered
from placet.standing import AsyncStanding, AttemptLost, ThreadStanding, guarded
from placet.v1 import action_pb2, capability_pb2
from placet.v1 import connector_service_pb2 as pb

PROCEED_SECONDS = 10.0
# Placet stops an attempt at its deadline; this is for one that nobody stops.
LATE_SECONDS = 1.0
# From the deadline on, for an answer to what was said at the last moment.
ACK_SECONDS = 10.0
CALLS_MAX = 64
CALL_FAILED = "call_failed"

log = logging.getLogger("placet.connector")


class Attempt:
    """Belongs to one event loop. `run` it once, in a task of its own."""

    def __init__(self, start: pb.InvokeStart, tool: Tool, threads: Executor) -> None:
        self._loop = asyncio.get_running_loop()
        self.deadline = self._loop.time() + start.time_left.ToTimedelta().total_seconds()
        self._start = start
        self._tool = tool
        self._threads = threads
        self._is_read = tool.capability.contract.effect == capability_pb2.EFFECT_CLASS_READ
        self._outlets: list[Outlet] = []
        self._questions: list[Question] = []
        self._marking = asyncio.Lock()
        self._calling = asyncio.Semaphore(CALLS_MAX)
        # Children that have done something, or may have; and those that are waited for.
        self._effects = 0
        self._calls = 0
        self._stopped = asyncio.Event()
        self._decided: asyncio.Future[bool] = self._loop.create_future()
        self._standing: ThreadStanding | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_cancellable = False
        self._is_over = False
        self.is_touched = not tool.effect_marked
        """The provider may have been touched."""

    @property
    def may_have_acted(self) -> bool:
        """This attempt or a child of it may have done something."""
        return self.is_touched or self._effects > 0

    @property
    def waits_for_child(self) -> bool:
        """Others may work meanwhile."""
        return self._calls > 0

    async def may_begin(self) -> bool:
        """Once Placet says so. False: nobody says it any more."""
        until = min(self.deadline, self._loop.time() + PROCEED_SECONDS)
        timer = self._loop.call_at(until, self._decide, False)
        try:
            return await self._decided
        finally:
            timer.cancel()

    def proceed(self) -> None:
        self._decide(True)

    async def run(self) -> pb.InvokeResponse:
        """The handler to its end, and the frame that says how it ended. Never raises."""
        task = self._task = asyncio.current_task()
        assert task is not None
        timer = self._loop.call_at(self.deadline + LATE_SECONDS, self.stop)
        try:
            return frame.result(await self._call())
        except Failure as failure:
            return self._declared(failure)
        except CallFailed as failed:
            return self._declared(self._failed_by_child(failed))
        except ExceptionGroup as group:
            match gathered(group):
                case Failure() as declared:
                    return self._declared(declared)
                case CallFailed() as called:
                    return self._declared(self._failed_by_child(called))
            return self._undeclared(group)
        except (asyncio.CancelledError, Cancelled):
            return self._undeclared(None)
        # Also SystemExit and KeyboardInterrupt: a handler does not end the process.
        except BaseException as error:
            # Not the handler's doing: the loop is gone, and with it this coroutine.
            if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not task:
                raise
            return self._undeclared(error)
        finally:
            timer.cancel()
            self._is_over, self._is_cancellable = True, False
            self._lose_questions()
            if task.cancelling():
                await _forget_cancel(task)

    def stop(self) -> None:
        """Ask the handler to stop, once. A thread that does not look goes on."""
        self._decide(False)
        if self._stopped.is_set() or self._is_over:
            return
        self._stopped.set()
        if self._standing is not None:
            self._standing.stopped.set()
            self._lose_questions()
        if self._is_cancellable and self._task is not None:
            self._task.cancel()

    def attach(self, outlet: Outlet) -> None:
        """One more stream; what is asked already is asked there too."""
        self._outlets.append(outlet)
        for question in self._questions:
            outlet.ask(question)

    def detach(self, outlet: Outlet) -> None:
        """Its stream is lost, or has its answer."""
        outlet.close()
        if outlet in self._outlets:
            self._outlets.remove(outlet)
        self.check_hearing()
        if not self._outlets:
            self._decide(False)
            if self._is_read:
                self.stop()

    def check_hearing(self) -> None:
        """Nobody waits for an answer that can come on no stream."""
        if not any(outlet.hears for outlet in self._outlets):
            self._lose_questions()

    def finish(self, answer: pb.InvokeResponse) -> None:
        for outlet in self._outlets:
            outlet.finish(answer)

    def give_up(self) -> None:
        """It was never begun."""
        for outlet in self._outlets:
            outlet.close()

    # What the contexts stand on.

    def describe(self, context: Standing) -> None:
        start = self._start
        context.action_id = start.action_id
        context.capability = start.capability
        context.version = start.version
        context.caller = caller_info(start.caller)
        context.attempt = start.attempt
        context.effect_key = start.effect_key
        context.credential_handle = start.credential_handle or None
        context.provider_operation = start.provider_operation or None
        context.provider_cursor = json.loads(start.provider_cursor_json or "null")
        context.trace = dict(start.trace_context)

    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    async def wait_stopped(self) -> None:
        await self._stopped.wait()

    async def effect(self) -> str:
        """Durable before it returns; only the first call asks."""
        self._check_goes_on()
        async with self._marking:
            if not self.is_touched and not self._is_read:
                await self._ask("effect", frame.effect_mark)
                self.is_touched = True
        return self._start.effect_key

    async def checkpoint(self, operation: str, cursor: Json) -> None:
        """Whoever can name the provider's operation has touched the provider. Raises ValueError."""
        said = frame.checkpoint(operation, cursor)
        self.is_touched = True
        await self._ask("checkpoint", lambda number: pb.InvokeResponse(checkpoint=_numbered(said, number)))

    async def chunk(self, data: Json | bytes) -> None:
        self._check_goes_on()
        said = frame.chunk(data)
        await self._say(lambda number: pb.InvokeResponse(chunk=_numbered(said, number)))

    async def progress(self, message: str, fraction: float | None) -> None:
        self._check_goes_on()
        said = frame.progress(message, fraction)
        await self._say(lambda number: pb.InvokeResponse(progress=_numbered(said, number)))

    async def call(
        self,
        step: str,
        capability: str,
        value: Json,
        version: str,
        timeout_seconds: float | None,
        scopes: frozenset[str] | None,
    ) -> Json:
        """Another capability as a step of this attempt. Raises CallFailed, ValueError."""
        said = frame.child_call(step, capability, value, version, timeout_seconds, scopes)
        if self._stopped.is_set():
            raise Cancelled
        self._effects += 1
        self._calls += 1
        try:
            async with self._calling:
                ended: pb.ChildResult = await self._ask(
                    "child", lambda number: pb.InvokeResponse(child_call=_numbered(said, number))
                )
        finally:
            self._calls -= 1
        if ended.WhichOneof("ending") == "output_json":
            output: Json = json.loads(ended.output_json)
            return output
        outcome = frame.call_outcome(ended)
        if outcome.effect in (None, "not_done"):
            self._effects -= 1
        raise CallFailed(outcome)

    # How.

    async def _call(self) -> Any:
        tool, text = self._tool, self._start.input_json
        if self._stopped.is_set():
            raise Cancelled
        if tool.is_async:
            self._is_cancellable = True
            return await tool.call(AsyncStanding(self) if tool.wants_context else None, text)
        # A thread cannot be cancelled, and its end is waited for, however late: until then it may still act.
        context = self._standing = ThreadStanding(self)
        return await self._in_thread(lambda: tool.call(context, text))

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        call = self._loop.run_in_executor(self._threads, copy_context().run, guarded(function))
        # Cancelled by the end of the process alone, which leaves the thread behind.
        return await asyncio.shield(call)

    def _decide(self, begins: bool) -> None:
        if not self._decided.done():
            self._decided.set_result(begins)

    def _check_goes_on(self) -> None:
        if self._is_over:
            raise AttemptLost

    async def _say(self, said: Numbered) -> None:
        for outlet in list(self._outlets):
            await outlet.say(said)

    async def _ask(self, kind: Kind, said: Numbered) -> Any:
        self._check_goes_on()
        hearing = [outlet for outlet in self._outlets if outlet.hears]
        if not hearing:
            raise AttemptLost
        question = Question(kind, said)
        self._questions.append(question)
        for outlet in hearing:
            outlet.ask(question)
        try:
            async with asyncio.timeout_at(max(self._loop.time(), self.deadline) + ACK_SECONDS):
                return await question.answer
        except TimeoutError:
            raise AttemptLost from None
        finally:
            self._questions.remove(question)

    def _lose_questions(self) -> None:
        for question in self._questions:
            question.lost(AttemptLost())

    def _failed_by_child(self, failed: CallFailed) -> Failure:
        """Nothing was done, if nothing that does anything was begun; of earlier attempts nothing is known here."""
        is_certain = not self.may_have_acted and self._start.attempt == 1
        return Failure(CALL_FAILED, str(failed), effect="not_done" if is_certain else "unknown")

    def _declared(self, failure: Failure) -> pb.InvokeResponse:
        """A failure whose members are not what its class promises declares nothing."""
        try:
            return frame.failure(failure)
        except Exception as error:
            return self._undeclared(error)

    def _undeclared(self, error: BaseException | None) -> pb.InvokeResponse:
        facts = {"action_id": self._start.action_id, "attempt": self._start.attempt}
        if self._stopped.is_set():
            log.info("handler of %s was stopped", self._start.capability, extra=facts)
        else:
            log.error(
                "handler of %s raised what it does not declare",
                self._start.capability,
                exc_info=error,
                extra=facts,
            )
        return frame.undeclared()


def caller_info(caller: action_pb2.Caller) -> CallerInfo:
    return CallerInfo(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=_kind(caller.kind),
        roles=tuple(caller.roles),
        groups=tuple(caller.groups),
        scopes=tuple(caller.scopes),
        delegation=tuple(
            DelegateInfo(subject=each.subject, kind=_kind(each.kind)) for each in caller.delegation
        ),
    )


def _kind(kind: int) -> str:
    return frame.word(action_pb2.CallerKind, kind, "CALLER_KIND_").lower()


def _numbered(said: Any, number: int) -> Any:
    copy = type(said)()
    copy.CopyFrom(said)
    copy.number = number
    return copy


async def _forget_cancel(task: asyncio.Task[Any]) -> None:
    """A cancel that the handler did not take must not hit the answer: it may have cancelled its own task."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()
