"""Going on with an action that exists, by its id: joining who runs it, or running it where nobody does.

What ended is told, never run again. The work is its requester's, as the row says, whoever resumes it; and it takes the
one way by which anybody acquires a ready action, so that a resend, a claim from the queue, a rescue and this never run
it twice at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType

from placet_server.core.admission.answer import answer
from placet_server.core.admission.attend import Wish, attend
from placet_server.core.admission.contract import wait_seconds_for
from placet_server.core.admission.execute import tell_until_ended
from placet_server.core.execution.runs import Patience
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.model.action import Action, OnWait
from placet_server.model.caller import Caller, caller_of
from placet_server.model.errors import PlacetError
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.lifecycle import TERMINAL

_NO_TRACE: Mapping[str, str] = MappingProxyType({})


async def resume(
    kernel: Kernel,
    caller: Caller,
    action_id: str,
    time_left_seconds: float | None,
    trace: Mapping[str, str] = _NO_TRACE,
    on_wait: OnWait = OnWait.FAIL,
) -> Action:
    """The action, SUCCEEDED; or WAITING, for who wants that returned.

    Raises NotFound; what `execute` raises for other endings, or once the wait is over; and CredentialMismatch, if it
    would have to be run with the requester's credential as it is now.
    A cancelled caller leaves the work to what its `on_caller_gone` says.
    """
    action = await get_action(kernel.journal, caller, action_id, full=True)
    wish, patience = _wish(action, time_left_seconds, trace, on_wait)
    return await answer(kernel.journal, await _continue(kernel, wish, action, patience), on_wait)


async def resume_stream(
    kernel: Kernel,
    caller: Caller,
    action_id: str,
    after_cursor: str,
    time_left_seconds: float | None,
    trace: Mapping[str, str] = _NO_TRACE,
    on_wait: OnWait = OnWait.FAIL,
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """The same, with every event after the cursor."""
    action = await get_action(kernel.journal, caller, action_id, full=True)
    wish, patience = _wish(action, time_left_seconds, trace, on_wait)
    running = kernel.engine.supervisor.start(_answer(kernel, wish, action, patience))
    try:
        told = tell_until_ended(kernel, caller, action_id, after_cursor, running, on_wait)
        async with aclosing(told) as items:
            async for item in items:
                yield item
    finally:
        if not running.done():
            await kernel.engine.supervisor.stop([running])


async def _answer(kernel: Kernel, wish: Wish, action: Action, patience: Patience) -> Action | PlacetError:
    """The error is the caller's, not a fault of the task, so it is returned."""
    try:
        return await _continue(kernel, wish, action, patience)
    except PlacetError as error:
        return error


async def _continue(kernel: Kernel, wish: Wish, action: Action, patience: Patience) -> Action:
    if action.state not in TERMINAL:
        action = await attend(kernel, wish, action, patience)
    return action


def _wish(
    action: Action, time_left_seconds: float | None, trace: Mapping[str, str], on_wait: OnWait
) -> tuple[Wish, Patience]:
    """Of its requester, within the time of who resumes it."""
    seconds = wait_seconds_for(time_left_seconds)
    wish = Wish(
        caller_of(action.requester),
        action.input_json or "",
        None,
        time_left_seconds,
        seconds,
        trace=trace,
        holds=on_wait is OnWait.HOLD,
    )
    return wish, Patience(None if seconds is None else asyncio.get_running_loop().time() + seconds)
