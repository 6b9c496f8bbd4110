"""Running rows of this boot that no run in its memory stands behind.

Mostly the reply to their admission or claim was lost: no handler was ever entered, so nothing has happened
in that attempt, and they are ready again at no cost. Where a run ended by a fault of ours after its handler
was entered, the attempt counts as lost with all that this may mean."""

from __future__ import annotations

from placet_server.core.execution.cancel import cancel_below
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import judge
from placet_server.core.publication.read import now_us
from placet_server.core.publication.settle import settle
from placet_server.model.action import Action
from placet_server.store import action as actions

BATCH_MAX = 500


async def release_forgotten(engine: Engine) -> int:
    """One bounded batch.

    A row counts as forgotten only once it is older than any reply that may still be under way.
    """
    journal = engine.journal
    # Looked at before the store is: a run that ends in between leaves memory after its row was read as running.
    running = [run.action_id for run in engine.runs]
    async with journal.pool.connection() as connection:
        owned = await actions.list_owned(
            connection,
            journal.boot_id,
            known_ids=running,
            age_seconds=engine.settings.unowned_age_seconds,
            count_max=BATCH_MAX,
            now=journal.clock.now(),
        )
    forgotten = [action for action in owned if engine.runs.get(action.action_id) is None]
    if not forgotten:
        return 0
    now = await now_us(journal)
    released = 0
    for action in forgotten:
        if action.cancel_requested_time_us is not None:
            await cancel_below(journal, action, engine=engine)
        verdict = judge(action, _ending(engine, action), now_us=now)
        settled = await settle(journal, action, verdict, as_read=True)
        if settled is not None:
            released += 1
            engine.runs.abandoned.discard(action.lease_id or "")
    return released


def _ending(engine: Engine, action: Action) -> Stopped:
    if action.lease_id in engine.runs.abandoned:
        return Stopped(cause=StopCause.INSTANCE_LOST)
    return Stopped(cause=StopCause.NEVER_STARTED, entered=False)
