"""What an attempt came to, when Placet asks later: from the table of attempts first, then from the author's lookup.

One attempt's word is not enough where several were made: "not done" counts if every one of them says it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any

from pydantic_core import to_jsonable_python

from placet.app import Tool
from placet.connector import frame
from placet.connector.attempt import caller_info
from placet.connector.attempt_table import AttemptTable, Ended, Key
from placet.failure import CODE_LENGTH_MAX
from placet.lookup import Committed, Lookup, LookupContext, NotCommitted, NotKnown
from placet.standing import guarded
from placet.v1 import connector_service_pb2 as pb
from placet.v1 import outcome_pb2

# More attempts than any contract allows are not looked through.
ATTEMPTS_MAX = 1000

_RETRYABLE = (outcome_pb2.FAILURE_CATEGORY_TEMPORARY, outcome_pb2.FAILURE_CATEGORY_RATE_LIMITED)

log = logging.getLogger("placet.connector")


def known(table: AttemptTable, request: pb.LookupRequest) -> pb.LookupResponse | None:
    """What this process knows by itself; None if the author must be asked."""
    if table.runs_any_of(request.action_id):
        return pb.LookupResponse(still_running=pb.StillRunning())
    if request.attempt > ATTEMPTS_MAX:
        return None
    attempts = table.ended_of(request.action_id, request.attempt)
    for each in reversed(attempts):
        if each is not None and each.answer is not None and each.answer.HasField("result"):
            return pb.LookupResponse(committed=each.answer.result, not_running=True)
    if not all(each is not None and _is_not_done(each) for each in attempts):
        return None
    last = attempts[-1]
    assert last is not None
    assert last.answer is not None
    failure = last.answer.failure
    return pb.LookupResponse(
        not_committed=pb.NotCommitted(
            retryable=last.is_untouched or failure.category in _RETRYABLE,
            code=failure.code,
            message=failure.message,
        ),
        not_running=True,
    )


async def ask(
    lookup: Lookup, request: pb.LookupRequest, threads: Executor, seconds: float
) -> pb.LookupResponse:
    """Never raises: who cannot answer, or answers badly, does not know."""
    context = _context(request, seconds)
    try:
        async with asyncio.timeout(seconds):
            if lookup.is_async:
                answer = await lookup.call(context, request.input_json)
            else:
                answer = await _in_thread(threads, lambda: lookup.call(context, request.input_json))
        return _response(answer)
    except TimeoutError:
        return _not_known(f"The lookup did not answer within {seconds:g} s.")
    except (asyncio.CancelledError, GeneratorExit):
        raise
    # Also SystemExit and KeyboardInterrupt: a lookup does not end the process.
    except BaseException as error:
        facts = {"action_id": request.action_id, "attempt": request.attempt}
        log.error("lookup of %s raised an error", request.capability, exc_info=error, extra=facts)
        return _not_known("The lookup raised an error; the connector's log has it.")


def no_lookup() -> pb.LookupResponse:
    return _not_known("The author has no lookup, and the attempt is not known here.")


def response_over(
    table: AttemptTable, request: pb.LookupRequest, found: pb.LookupResponse
) -> pb.LookupResponse:
    """With what the table says of the attempt, after the author was asked: it may have begun again meanwhile."""
    if table.runs_any_of(request.action_id):
        return pb.LookupResponse(still_running=pb.StillRunning())
    found.not_running = table.is_over(Key(request.action_id, request.attempt))
    return found


def _is_not_done(ended: Ended) -> bool:
    if ended.answer is None:
        return False
    return ended.is_untouched or ended.answer.failure.effect == outcome_pb2.EFFECT_STATE_NOT_DONE


def _response(answer: object) -> pb.LookupResponse:
    match answer:
        case Committed():
            output = frame.json_text(to_jsonable_python(answer.output, by_alias=True))
            if len(output.encode()) > frame.PAYLOAD_BYTES_MAX:
                raise ValueError("the output is too large to be sent")
            return pb.LookupResponse(committed=pb.InvokeResult(output_json=output))
        case NotCommitted():
            return pb.LookupResponse(
                not_committed=pb.NotCommitted(
                    retryable=answer.retryable is True,
                    code=frame.storable(answer.code, CODE_LENGTH_MAX),
                    message=frame.storable(answer.message, frame.MESSAGE_LENGTH_MAX),
                )
            )
        case NotKnown():
            return _not_known(answer.message)
    raise TypeError(f"a lookup returned {type(answer).__name__}, not Committed, NotCommitted or NotKnown")


def _not_known(message: str) -> pb.LookupResponse:
    return pb.LookupResponse(not_known=pb.NotKnown(message=frame.storable(message, frame.MESSAGE_LENGTH_MAX)))


def _context(request: pb.LookupRequest, seconds: float) -> LookupContext:
    return LookupContext(
        action_id=request.action_id,
        capability=request.capability,
        version=request.version,
        caller=caller_info(request.caller),
        attempt=request.attempt,
        effect_key=request.effect_key,
        credential_handle=request.credential_handle or None,
        provider_operation=request.provider_operation or None,
        provider_cursor=json.loads(request.provider_cursor_json or "null"),
        until=time.monotonic() + seconds,
    )


async def _in_thread(threads: Executor, function: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, copy_context().run, guarded(function))


def lookups_of(tools: tuple[Tool, ...]) -> list[str]:
    """As Describe names them."""
    return [f"{tool.name}@{tool.version}" for tool in tools if tool.lookup is not None]
