"""The newest rows of the feed, which its index does not know of until it is told: reading them costs a look at each.

Told by readers, so that who writes pays nothing, and a store without readers does neither.
"""

from __future__ import annotations

import time

from placet_server.model.errors import StoreUnavailable
from placet_server.store import feed
from placet_server.store.pool import Pool

EVERY_SECONDS = 1.0
ANSWER_SECONDS = 5.0


class FeedTail:
    """Of one process: its readers share it."""

    def __init__(self) -> None:
        self._told_at = float("-inf")

    async def summarize(self, pool: Pool) -> None:
        """Now and then. What is not done in time is done next time; reading is slower until then, and no less right."""
        if time.monotonic() - self._told_at < EVERY_SECONDS:
            return
        self._told_at = time.monotonic()
        try:
            async with pool.connection(ANSWER_SECONDS) as connection:
                await feed.summarize(connection)
        except StoreUnavailable:
            return
