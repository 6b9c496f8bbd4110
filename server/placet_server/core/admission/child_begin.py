"""Children that begin here at once: written as they run, in the statement that admits them, as what is executed is.

Nobody else could have begun them sooner, and nobody is passed over: only while there are slots for whoever waits in
line. All else stands in line: what people have to say yes to, what a contract limits over all servers, what runs behind
a connector, whatever there is no slot or thread for, and what belongs to a queue that is paused, which the statement
finds out.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from placet_server.core.admission.dispatch import ANSWER_SECONDS
from placet_server.core.admission.submit import as_begun, placed
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.run import start_run
from placet_server.core.execution.runs import Run, Work
from placet_server.core.execution.trace import trace_of_step
from placet_server.core.publication.lease import new_lease_id
from placet_server.model.action import Action, OnCallerGone
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store.batch_item import ChildRow, Written

if TYPE_CHECKING:
    from placet_server.core.admission.dispatch_slot import Slot
    from placet_server.core.admission.pipeline import Checked
    from placet_server.core.execution.attempt import Attempt
    from placet_server.core.execution.engine import Engine
    from placet_server.core.kernel import Kernel


class Lease(NamedTuple):
    """What a child begins under, however often it has to be asked for because the store is away. `begin_until`, by the
    loop's clock: later, somebody else may have found that nobody runs what an earlier statement has written.
    """

    lease_id: str
    begin_until: float


def new_lease(kernel: Kernel) -> Lease:
    seconds = min(ANSWER_SECONDS, kernel.lease_seconds / 2)
    return Lease(new_lease_id(), asyncio.get_running_loop().time() + seconds)


def begin_child(kernel: Kernel, parent: Attempt, checked: Checked, row: ChildRow, lease: Lease) -> Run | None:
    """The run of it, which begins with its admission, and is nobody's but its own. None: it has to stand in line.

    It ends without an action if the row is there already, the parent may call nobody, or the queue is paused.
    """
    dispatcher, engine = kernel.dispatcher, kernel.engine
    if dispatcher is None or checked.tool is None or checked.terms is not None:
        return None
    if engine.runs.get(row["action_id"]) is not None:
        return None
    slot = dispatcher.slot_for_child(checked.capability, checked.tool, row["tenant"])
    if slot is None:
        return None
    try:
        return _start(kernel, parent, checked, row, lease, slot)
    except BaseException:
        slot.end()
        raise


def _start(kernel: Kernel, parent: Attempt, checked: Checked, row: ChildRow, lease: Lease, slot: Slot) -> Run:
    dispatcher, engine = kernel.dispatcher, kernel.engine
    assert dispatcher is not None
    assert checked.tool is not None
    seconds, most = checked.clocks.attempt_seconds, row["attempt_timeout_seconds"]
    seconds = seconds if most is None else min(seconds, most)
    row = {**row, "lease_id": lease.lease_id, "timeout_seconds": seconds}
    work = Work(
        checked.call.caller,
        checked.capability,
        checked.tool,
        row["input"],
        timeout_seconds=seconds,
        deadline_cause=StopCause.TIMEOUT,
    )
    run = engine.new_run(work, row["action_id"], OnCallerGone.DETACH)
    run.holdings = (slot,)
    engine.journal.boundary.reached("before_intent_persistence", checked.capability.name)
    # Before anything is awaited: a parent that is stopped meanwhile waits for it, and then cancels what it finds.
    writing = parent.counted(engine.journal.writer.admit_child(row))
    acquire = partial(_admit, kernel, parent, checked, row, lease, run, writing)
    start_run(engine, run, acquire, dispatcher.context())
    assert run.task is not None
    dispatcher.follow(run.task, run, row["queue"], slot)
    return run


async def _admit(
    kernel: Kernel,
    parent: Attempt,
    checked: Checked,
    row: ChildRow,
    lease: Lease,
    run: Run,
    writing: asyncio.Future[Written | None],
) -> Action | None:
    engine, written = kernel.engine, await writing
    if written is None:
        child = await _own_row(engine, row, lease)
    else:
        child = _begun(kernel, parent.action, checked, row, written) if written.begun else None
    if child is None:
        return None
    if kernel.dispatcher is not None:
        kernel.dispatcher.counts.claimed(row["queue"], row["tenant"])
    engine.journal.hub.publish(child.action_id)
    if engine.traces_runs:
        run.work = run.work._replace(trace=await trace_of_step(engine.journal, child))
    if parent.steps is not None and parent.steps.stands is not None:
        parent.steps.stands(row["step"], child)
    return child


async def _own_row(engine: Engine, row: ChildRow, lease: Lease) -> Action | None:
    """What a statement has written whose reply was lost, as long as nobody has begun it, nor looks for it."""
    if lease.lease_id in engine.runs.abandoned:
        return None
    async with engine.journal.pool.connection() as connection:
        stored = await actions.get(connection, row["tenant"], row["action_id"], full=True)
    if stored is None or stored.lease_id != lease.lease_id or stored.state is not ActionState.RUNNING:
        return None
    is_late = asyncio.get_running_loop().time() >= lease.begin_until
    return None if is_late or stored.cancel_requested_time_us is not None else stored


def _begun(kernel: Kernel, parent: Action, checked: Checked, row: ChildRow, written: Written) -> Action:
    """The row as the statement wrote it."""
    child = as_begun(kernel.journal, placed(kernel.journal, checked, row, written), row)
    return child.with_members(
        {
            "parent_id": row["parent_id"],
            "root_id": parent.root_id or parent.action_id,
            "step_path": row["step_path"],
        }
    )
