"""What is COMPOSED and called: it runs here from the start, written in one statement as what stands in line is, so that
any server goes on with it once its steps have ended.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import cast

from placet_server.core.admission.attend import work_of
from placet_server.core.admission.contract import clocks_for
from placet_server.core.admission.pipeline import Checked
from placet_server.core.admission.submit import as_begun, new_row, placed
from placet_server.core.execution.run import start_run
from placet_server.core.kernel import Kernel
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.model.action import Action, OnCallerGone, Submission
from placet_server.store import action as actions
from placet_server.store.batch_item import BegunRow


async def begin_here(kernel: Kernel, checked: Checked) -> Action | None:
    """The action, which runs; or as it stands if that is somebody else's by now. None: nothing was stored, and it has
    to stand in line, or somebody has its key.

    Raises DeadlineExceeded, StoreUnavailable; whether it was stored is then for the ownership check to find out.
    """
    if not _may_begin(kernel, checked):
        return None
    journal, engine, call = kernel.journal, kernel.engine, checked.call
    # Nobody's leaving ends it.
    invocation = replace(call.invocation, on_caller_gone=OnCallerGone.DETACH)
    clocks = clocks_for(checked.capability, invocation, call.time_left_seconds)
    work = work_of(checked)._replace(
        timeout_seconds=clocks.attempt_seconds, deadline_cause=clocks.attempt_cause
    )
    row = cast(BegunRow, new_row(journal, checked, Submission()))
    row["lease_id"], row["timeout_seconds"] = new_lease_id(), work.timeout_seconds
    run = engine.new_run(work, row["action_id"], OnCallerGone.DETACH)
    admitted: asyncio.Future[Action | None] = asyncio.get_running_loop().create_future()
    start_run(engine, run, partial(_admit, journal, checked, row, admitted))
    assert run.task is not None
    # However it ends, as with its server, nobody waits for it any longer.
    run.task.add_done_callback(lambda _: admitted.cancel())
    return await admitted


def _may_begin(kernel: Kernel, checked: Checked) -> bool:
    """Whether nobody else has to be asked."""
    call = checked.call
    others = checked.terms is not None or call.invocation.session is not None or call.message is not None
    return not (others or checked.capability.is_limited or kernel.is_draining)


async def _admit(
    journal: Journal, checked: Checked, row: BegunRow, admitted: asyncio.Future[Action | None]
) -> Action | None:
    """The running action; None: it is not this run's. Tells whoever waits for it, who may have gone, of any."""
    try:
        action = await _written(journal, checked, row)
    except Exception as error:
        if not admitted.done():
            admitted.set_exception(error)
        raise
    if not admitted.done():
        admitted.set_result(action)
    return action if action is not None and action.lease_id == row["lease_id"] else None


async def _written(journal: Journal, checked: Checked, row: BegunRow) -> Action | None:
    journal.boundary.reached("before_intent_persistence", checked.capability.name)
    written = await journal.writer.submit_begun(row)
    if written is not None:
        return as_begun(journal, placed(journal, checked, row, written), row)
    # After a lost reply the statement runs twice, and the second run meets the first one's row: there is no other then.
    async with journal.pool.connection() as connection:
        return await actions.get(connection, row["tenant"], row["action_id"], full=True)
