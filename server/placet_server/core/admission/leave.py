"""When who waits for what is COMPOSED goes away. It may run anywhere, or nowhere, so no run here hears of that: its
caller's leaving is a cancel like anybody's, once nobody has come again for a while; and only if the call says so, for
by default it goes on. What waits for people goes on, too. Only this process knows of it: if that ends, the work goes
on.
"""

from __future__ import annotations

import asyncio

from placet_server.core.admission.answer import waits_for_people
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound, StoreUnavailable

CALLER_GONE = "its caller is gone"


def leave(kernel: Kernel, caller: Caller, action_id: str) -> None:
    """Nobody waits for this any more, as far as one caller is concerned."""
    if not kernel.is_draining:
        kernel.engine.supervisor.start(cancel_unless_wanted(kernel, caller, action_id))


async def cancel_unless_wanted(kernel: Kernel, caller: Caller, action_id: str) -> None:
    """After the grace."""
    engine = kernel.engine
    await asyncio.sleep(engine.settings.reattach_grace_seconds)
    while not engine.runs.is_wanted(action_id) and not kernel.is_draining:
        try:
            action = await get_action(kernel.journal, caller, action_id, full=False)
            if waits_for_people(await with_family_waits(kernel.journal, action)):
                return
            await cancel_action(engine, caller, action_id, CALLER_GONE)
        except StoreUnavailable:
            await asyncio.sleep(kernel.journal.poll_seconds)
        except NotFound:
            return
        else:
            return
