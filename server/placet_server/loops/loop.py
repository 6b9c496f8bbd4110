"""How every loop of the service runs: one bounded step, again at its interval, through outages, to the
end of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from placet_server.model.errors import StoreUnavailable

_log = logging.getLogger(__name__)

Pause = Callable[[float], Awaitable[object]]


async def repeat(
    name: str, step: Callable[[], Awaitable[bool]], interval_seconds: float, pause: Pause = asyncio.sleep
) -> None:
    """`step` returns whether there is more to do at once. `pause` waits so long, or until it is woken.

    A fault of a step is logged and ends that step alone; then the whole interval is waited.
    """
    while True:
        more, wait = False, pause
        try:
            more = await step()
        except StoreUnavailable:
            wait = asyncio.sleep
            _log.debug("%s: the store does not answer", name)
        except Exception:
            wait = asyncio.sleep
            _log.exception("%s: a step failed", name)
        await wait(0 if more else interval_seconds)
