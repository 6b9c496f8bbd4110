"""Running rows of this boot that no run in its memory stands behind: the reply to their admission or claim
was lost.

No handler was ever entered for them, so nothing has happened in that attempt, and they are ready again at
no cost."""

from __future__ import annotations

from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import StopCause, Stopped, judge
from placet_server.core.publication.read import now_us
from placet_server.core.publication.settle import settle
from placet_server.store import action as actions

BATCH_MAX = 500


async def release_forgotten(engine: Engine) -> int:
    """One bounded batch.

    A row counts as forgotten only once it is older than any reply that may still be under way.
    """
    journal = engine.journal
    async with journal.pool.connection() as connection:
        owned = await actions.list_owned(
            connection,
            journal.boot_id,
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
        settled = await settle(
            journal, action, judge(action, Stopped(cause=StopCause.NEVER_STARTED), now_us=now)
        )
        released += settled is not None
    return released
