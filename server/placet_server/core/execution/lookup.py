"""Asking a handler's lookup what became of an effect. Nothing is written here, and no lease is taken.

A lookup is the author's code: it may be slow, wrong or never end. So each is asked in a task of its own, whose answer
is not waited for beyond its time. What does not end keeps its place in the budget, as a thread keeps its slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import placet.lookup as said
from placet.app import Tool
from placet.failure import CODE_LENGTH_MAX, Failure
from placet.lookup import LookupContext
from placet_server.core.execution.attempt import caller_info
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.finding import Committed, Finding, NotCommitted, NotKnown, StillRunning
from placet_server.core.execution.invoke import MESSAGE_LENGTH_MAX, read_output, storable
from placet_server.model.action import Action
from placet_server.model.caller import caller_of
from placet_server.model.capability import Capability
from placet_server.model.errors import Overloaded

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`action` with its input. `capability` at the version that it has pinned. `seconds`: how long an answer counts."""

    action: Action
    capability: Capability
    seconds: float
    trace: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


async def look_up(engine: Engine, tool: Tool, question: Question) -> Finding:
    """Never raises: who cannot answer, or answers badly, does not know. `tool` has a lookup.

    A lookup may also answer with a Finding, where it knows more than an author can say.
    """
    task = engine.lookups.start(_ask(engine, tool, question))
    await asyncio.wait((task,), timeout=question.seconds)
    if not task.done():
        task.cancel()
        return NotKnown(message=f"The lookup did not answer within {question.seconds:g} s.")
    if task.cancelled():
        return NotKnown(message="The lookup was broken off.")
    return task.result()


async def _ask(engine: Engine, tool: Tool, question: Question) -> Finding:
    assert tool.lookup is not None
    context, text = _context(question), question.action.input_json or ""
    try:
        if tool.lookup.is_async:
            return _finding(question, await tool.lookup.call(context, text))
        return _finding(question, await _in_thread(engine, tool, question, context))
    except Failure as failure:
        return NotKnown(message=storable(str(failure), MESSAGE_LENGTH_MAX))
    except Overloaded:
        return NotKnown(message="No thread is free for a lookup of this capability.")
    except (asyncio.CancelledError, GeneratorExit):
        raise
    # Also SystemExit and KeyboardInterrupt: a lookup does not end the server.
    except BaseException as error:
        action = question.action
        _log.error(
            "lookup of %s raised what it does not declare",
            action.capability,
            exc_info=error,
            extra={"action_id": action.action_id, "attempt": action.attempt},
        )
        return NotKnown(message="The lookup raised an error; the server's log has it.")


async def _in_thread(engine: Engine, tool: Tool, question: Question, context: LookupContext) -> Any:
    """Its slot is free again when the thread has returned, however late that is."""
    lookup, lookups, action = tool.lookup, engine.lookups, question.action
    assert lookup is not None
    tenant, capability, text = action.requester.tenant, action.capability, action.input_json or ""
    lookups.reserve(tenant, capability)
    future = lookups.threads.call(lambda: lookup.call(context, text), context.time_left())

    def ended(future: asyncio.Future[Any]) -> None:
        lookups.release(tenant, capability)
        with contextlib.suppress(BaseException):
            future.result()

    future.add_done_callback(ended)
    return await asyncio.shield(future)


def _finding(question: Question, answer: object) -> Finding:
    match answer:
        case said.Committed():
            return Committed(ending=read_output(question.capability, answer.output))
        case said.NotCommitted():
            return NotCommitted(
                retryable=answer.retryable is True,
                code=storable(answer.code, CODE_LENGTH_MAX) or NotCommitted().code,
                message=storable(answer.message, MESSAGE_LENGTH_MAX),
            )
        case said.NotKnown():
            return NotKnown(message=storable(answer.message, MESSAGE_LENGTH_MAX))
        case Committed() | NotCommitted() | StillRunning() | NotKnown():
            return answer
    text = f"The lookup answered with {type(answer).__name__}, not Committed, NotCommitted or NotKnown."
    _log.error(text, extra={"action_id": question.action.action_id, "capability": question.action.capability})
    return NotKnown(message=storable(text, MESSAGE_LENGTH_MAX))


def _context(question: Question) -> LookupContext:
    action = question.action
    caller = caller_of(action.requester)
    cursor = action.provider_cursor_json
    return LookupContext(
        action_id=action.action_id,
        capability=action.capability,
        version=action.version,
        caller=caller_info(caller),
        attempt=action.attempt,
        effect_key=action.effect_key,
        credential_handle=None if caller.credential is None else caller.credential.handle,
        provider_operation=action.provider_operation or None,
        provider_cursor=None if cursor is None else json.loads(cursor),
        trace=question.trace,
        until=time.monotonic() + question.seconds,
    )
