"""How every loop of the service runs: one bounded step, again at its interval, through outages, to the
end of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from placet_server.model.errors import StoreUnavailable

_log = logging.getLogger(__name__)


async def repeat(name: str, step: Callable[[], Awaitable[bool]], interval_seconds: float) -> None:
    """`step` returns whether there is more to do at once.

    A fault of a step is logged and ends that step alone.
    """
    while True:
        more = False
        try:
            more = await step()
        except StoreUnavailable:
            _log.debug("%s: the store does not answer", name)
        except Exception:
            _log.exception("%s: a step failed", name)
        await asyncio.sleep(0 if more else interval_seconds)
