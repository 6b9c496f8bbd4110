"""Entering the handler and reading how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from placet.failure import CODE_LENGTH_MAX, CallFailed, Cancelled, Failure, gathered
from placet.standing import AsyncStanding, ThreadStanding
from placet_server.core.execution.attempt import Attempt, LeaseLost
from placet_server.core.execution.child import UNSTORABLE
from placet_server.core.execution.connectors import ConnectorFailure, OutputText
from placet_server.core.execution.ending import (
    CONNECTOR_UNAVAILABLE,
    HANDLER_FAILED,
    Ended,
    Ending,
    Failed,
    Parked,
    Raised,
    Returned,
    ReturnedBadly,
    Stopped,
)
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.runs import Run
from placet_server.model.capability import Capability
from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_text import canonicalize, canonicalize_value
from placet_server.model.outcome import EffectState, FailureCategory

MESSAGE_LENGTH_MAX = 4096
PATH_LENGTH_MAX = 1024
RETRY_DELAY_SECONDS_MAX = 86_400.0

_log = logging.getLogger(__name__)


async def invoke(engine: Engine, attempt: Attempt) -> Ending:
    """Runs the handler to its end and never raises, but for LeaseLost. Belongs to the run's own task."""
    run, task = attempt.run, attempt.run.task
    assert task is not None
    left_seconds = attempt.time_left()
    timer = engine.timers.call_later(left_seconds, _time_out, engine, run)
    try:
        if left_seconds <= 0:
            run.stop(run.work.deadline_cause)
        if run.stop_cause is not None:
            return Stopped(cause=run.stop_cause, entered=False)
        run.handler_was_entered = True
        value = await (_call_inline(attempt) if run.work.tool.is_async else _call_in_thread(engine, attempt))
        return read_output(run.work.capability, value)
    except Failure as failure:
        return read_failure(attempt, failure)
    except CallFailed as failed:
        return _failed_by_child(attempt, failed)
    except ExceptionGroup as group:
        match gathered(group):
            case Failure() as declared:
                return read_failure(attempt, declared)
            case CallFailed() as called:
                return _failed_by_child(attempt, called)
        return _stopped_or_raised(attempt, group)
    except LeaseLost:
        raise
    except Ended as ended:
        return _ended(attempt, ended)
    except (asyncio.CancelledError, Cancelled):
        return _stopped_or_raised(attempt, None)
    # Also SystemExit and KeyboardInterrupt: a handler does not end the server.
    except BaseException as error:
        # Not the handler's doing: the loop is gone, and with it this coroutine.
        if isinstance(error, GeneratorExit) and asyncio.current_task(task.get_loop()) is not task:
            raise
        return _stopped_or_raised(attempt, error)
    finally:
        timer.cancel()
        run.handler_is_cancellable = False
        run.handler_has_ended = True
        if task.cancelling():
            await _forget_cancel(task)


def read_output(capability: Capability, value: Any) -> Returned | ReturnedBadly:
    """The output gate: canonical JSON within its bounds that fits the schema."""
    try:
        bytes_max = capability.contract.limits.output_bytes_max
        if type(value) is OutputText:
            output = canonicalize(value.text, bytes_max=bytes_max)
        else:
            output = canonicalize_value(value, bytes_max=bytes_max)
    except (JsonNotInteroperable, MalformedJson) as error:
        return _returned_badly(getattr(error, "path", ""), error.text())
    except PayloadTooLarge as error:
        return _returned_badly("", error.text())
    violations = capability.compiled_output.violations(output.value)
    if violations:
        return _returned_badly(violations[0].path, violations[0].message)
    return Returned(output_json=output.text, output_digest=output.digest.hex())


async def _forget_cancel(task: asyncio.Task[Any]) -> None:
    """A cancel that the handler did not take must not hit the settling: it may have cancelled its own task."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling():
        task.uncancel()


async def _call_inline(attempt: Attempt) -> Any:
    run = attempt.run
    context = AsyncStanding(attempt) if run.work.tool.wants_context else None
    run.handler_is_cancellable = True
    return await run.work.tool.call(context, run.work.input_json)


async def _call_in_thread(engine: Engine, attempt: Attempt) -> Any:
    """The slot was reserved at admission.

    The thread's end is waited for, however late: until then it may still act.
    """
    run = attempt.run
    context = ThreadStanding(attempt)
    tell = engine.supervisor.start(_pass_on(run.cancelled, context))
    try:
        tool, text = run.work.tool, run.work.input_json
        return await engine.threads.call(lambda: tool.call(context, text), attempt.time_left())
    finally:
        tell.cancel()


async def _pass_on(cancelled: asyncio.Event, context: ThreadStanding) -> None:
    await cancelled.wait()
    context.stopped.set()


def _time_out(engine: Engine, run: Run) -> None:
    run.stop(run.work.deadline_cause)
    run.answer_within(engine.settings.cancel_grace_seconds)


def _returned_badly(path: str, message: str) -> ReturnedBadly:
    return ReturnedBadly(path=storable(path, PATH_LENGTH_MAX), message=storable(message, MESSAGE_LENGTH_MAX))


def storable(text: str, length_max: int) -> str:
    """Cut, and without what Postgres cannot hold."""
    return UNSTORABLE.sub("\ufffd", text[:length_max])


def read_failure(attempt: Attempt, failure: Failure) -> Ending:
    """A failure whose members are not what its class promises declares nothing."""
    try:
        return _declared(failure)
    except Exception as error:
        return _stopped_or_raised(attempt, error)


def _declared(failure: Failure) -> Ending:
    delay = failure.retry_delay_seconds
    return Failed(
        code=storable(failure.code, CODE_LENGTH_MAX),
        message=storable(failure.message, MESSAGE_LENGTH_MAX),
        category=FailureCategory(failure.category.upper()),
        effect=EffectState(failure.effect.upper()),
        retry_delay_seconds=None if delay is None else max(0.0, min(RETRY_DELAY_SECONDS_MAX, delay)),
        reason=CONNECTOR_UNAVAILABLE if isinstance(failure, ConnectorFailure) else HANDLER_FAILED,
    )


def _ended(attempt: Attempt, ended: Ended) -> Ending:
    """What does something itself ends in no such way: its attempts are not one."""
    if attempt.steps is None:
        return _stopped_or_raised(attempt, ended)
    return ended.ending


def _failed_by_child(attempt: Attempt, failed: CallFailed) -> Ending:
    """That a child did not succeed says nothing of what else was done."""
    return Failed(
        code="call_failed",
        message=storable(str(failed), MESSAGE_LENGTH_MAX),
        category=FailureCategory.PERMANENT,
        effect=EffectState.NOT_DONE if attempt.has_done_nothing else EffectState.UNKNOWN,
    )


def _stopped_or_raised(attempt: Attempt, error: BaseException | None) -> Ending:
    """An error after somebody asked to stop is the stop's; a cancellation that nobody asked for is the
    handler's own fault.
    """
    cause = attempt.run.stop_cause
    if cause is not None:
        return Stopped(cause=cause)
    if (awaited := attempt.awaited) is not None:
        return Parked(awaited=awaited)
    action = attempt.action
    _log.error(
        "handler of %s raised what it does not declare",
        action.capability,
        exc_info=error,
        extra={"action_id": action.action_id, "attempt": action.attempt},
    )
    return Raised()
