"""Watching as somebody who wants the action to go on: while a watcher is there, its caller is not gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from placet_server.core.execution.engine import Engine
from placet_server.core.publication.watch import watch_action
from placet_server.model.caller import Caller
from placet_server.model.event import Event, IdleCheckpoint


async def watch_attached(
    engine: Engine, caller: Caller, action_id: str, after_cursor: str
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """`watch_action`, attached to the run if it is here.

    Attaching ends the grace that a lost connection began; losing the watcher then cancels nothing."""
    run = engine.runs.get(action_id)
    if run is not None and run.work.caller.tenant != caller.tenant:
        run = None
    if run is not None:
        run.attach()
    try:
        with engine.runs.wanting(action_id):
            async with aclosing(watch_action(engine.journal, caller, action_id, after_cursor)) as items:
                async for item in items:
                    yield item
    finally:
        if run is not None:
            run.detach()
