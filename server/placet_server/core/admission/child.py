"""The use case that a handler starts: an action that is a step of another one.

A child passes the gates that every action passes, in the name of its parent's requester, though never with more than
that one may (`model/caller.py: attenuated`), and needs no key: parent, step and try are its id, so that the same step
is the same child, whoever runs the parent when. It is admitted only under its parent's lease, in the statement that
writes it; and begins with it, if it can run here at once (`child_begin.py`). From there it is work like any other that
was submitted: its retries are the server's, any server runs it, and what becomes of its parent changes nothing about
it, but for a cancel. One that people have to say yes to waits for
them, and its parent for it within its own time; a yes after the parent has ended begins nothing (`begin.py`).

Which child a step is. The newest try, if it may have done something or may still do it: it succeeded, is open, is
ambiguous, or has failed with its effect done. If it has ended without an effect, that is the answer, too; but not for a
parent that was redriven since, nor, if no attempt of it had begun, for a later attempt of its parent, unless that is
COMPOSED, whose attempts are one: these try again, under the next number. What is waited for and ends is looked at anew.

The store away means no answer yet: a call waits for it as long as its attempt lasts, because a child that was stored
with its reply lost runs all the same."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from placet.failure import Cancelled
from placet_server.core.admission.child_begin import Lease, begin_child, new_lease
from placet_server.core.admission.pipeline import Call, Checked, check
from placet_server.core.admission.submit import new_row, placed
from placet_server.core.execution.attempt import Attempt, LeaseLost
from placet_server.core.execution.cancel import deliver_cancel
from placet_server.core.execution.child import StepCall
from placet_server.core.execution.runs import Patience, Run
from placet_server.core.publication.approval_callback import requested
from placet_server.core.publication.lease import child_id
from placet_server.core.publication.line import line_of
from placet_server.model.action import (
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
    Action,
    Invocation,
    OnCallerGone,
    Submission,
)
from placet_server.model.caller import attenuated
from placet_server.model.child_errors import ChildLimit, JournalMismatch
from placet_server.model.errors import PlacetError, StoreUnavailable
from placet_server.model.gate_errors import ContractViolation
from placet_server.model.json_text import canonicalize
from placet_server.model.lifecycle import GOES_ON, TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import action as actions
from placet_server.store import lineage
from placet_server.store.batch_item import ChildRow
from placet_server.store.lineage import DEPTH_MAX, Tried

if TYPE_CHECKING:
    from placet_server.core.kernel import Kernel

INPUT_BYTES_MAX = 3 * 2**20


class _Step(NamedTuple):
    """What a handler asked for."""

    attempt: Attempt
    name: str
    call: Call
    input_digest: str
    contract_digest: str


class Children:
    """Belongs to one event loop."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def call(self, attempt: Attempt, call: StepCall) -> Action:
        """See `ChildAdmitter.call`."""
        invocation = Invocation(
            capability=call.capability,
            version=call.version,
            input_json=call.input_json,
            timeout_seconds=call.timeout_seconds,
            on_caller_gone=OnCallerGone.DETACH,
        )
        caller = attenuated(attempt.run.work.caller, attempt.action.capability, call.scopes)
        try:
            step = _Step(
                attempt=attempt,
                name=call.step,
                call=Call(caller=caller, invocation=invocation),
                input_digest=canonicalize(call.input_json, bytes_max=INPUT_BYTES_MAX).digest.hex(),
                contract_digest=call.contract_digest,
            )
            return await self._answer(step)
        except PlacetError as error:
            self._kernel.engine.observer.refused(error.reason)
            raise

    async def _answer(self, step: _Step) -> Action:
        """The end of the step's newest try, or of a new one."""
        attempt = step.attempt
        # The first attempt finds no child but its own, which its statement meets; unless it goes on.
        before = attempt.action.attempt > 1 or attempt.action.cause in GOES_ON
        tried = await self._find(step) if before else None
        while True:
            if tried is None or is_superseded(attempt.action, tried):
                child = await self._admit(step, 1 if tried is None else tried.number + 1)
                # What has succeeded here is as it will be.
                return child if child.output_json is not None else await self._end(step, child)
            _check_same(step, tried.action)
            if tried.action.effect_class != "READ":
                await attempt.effect_of_child()
            end = await self._end(step, tried.action)
            tried = tried._replace(action=end)
            if not is_superseded(attempt.action, tried):
                return end

    async def _find(self, step: _Step) -> Tried | None:
        parent = step.attempt.action
        while True:
            step.attempt.check_wanted()
            try:
                async with self._kernel.journal.pool.connection() as connection:
                    return await lineage.find_step(
                        connection, parent.requester.tenant, parent.action_id, step.name
                    )
            except StoreUnavailable:
                await self._pause()

    async def _admit(self, step: _Step, number: int) -> Action:
        """The child as it waits, or as it is found; or its end, if it has run here."""
        lease = new_lease(self._kernel)
        lost = False
        while True:
            step.attempt.check_wanted()
            try:
                checked = await check(
                    self._kernel,
                    step.call,
                    anywhere=True,
                    needs_key=False,
                    parent=step.attempt.action.capability,
                )
                _check_effect(step.attempt.action, checked)
                _check_pinned(step, checked)
                if checked.capability.contract.effect != "READ":
                    await step.attempt.effect_of_child()
                child = await self._store(step, checked, number, lease)
                if child is not None:
                    return child
            except StoreUnavailable:
                lost = True
                await self._pause()
            except PlacetError:
                # It may have been written under what was allowed then, without a reply, and runs all the same.
                tried = await self._find(step) if lost else None
                if tried is None or tried.number != number:
                    raise
                _check_same(step, tried.action)
                return tried.action
            if step.attempt.entry is not None:
                # It waits for the store, or for who holds the parent's row, as a result does, and comes first.
                await asyncio.wait((step.attempt.entry[1],))

    async def _store(self, step: _Step, checked: Checked, number: int, lease: Lease) -> Action | None:
        """None: it came before the entry that makes it."""
        journal, attempt = self._kernel.journal, step.attempt
        row = self._row(step, checked, number)
        ahead = attempt.entry is not None and not attempt.entry[1].done()
        run = begin_child(self._kernel, attempt, checked, row, lease)
        if run is not None:
            return await self._first_of(run, step) or await self._met(step, row, ahead=ahead)
        journal.boundary.reached("before_intent_persistence", checked.capability.name)
        written = await attempt.durably(journal.writer.admit_child(row))
        if written is None:
            return await self._met(step, row, ahead=ahead)
        journal.boundary.reached("intent_persisted", checked.capability.name)
        child = placed(journal, checked, row, written)
        if child.state is ActionState.QUEUED:
            journal.doorbell.ring(line_of(child))
        else:
            journal.callbacks.ring()
        return child

    async def _first_of(self, run: Run, step: _Step) -> Action | None:
        """The child with its end, if it has come soon; else as it was admitted. None: it was not, or is in line. Raises
        Cancelled, StoreUnavailable.
        """
        seconds, loop = self._kernel.journal.poll_seconds, asyncio.get_running_loop()
        while True:
            step.attempt.check_wanted()
            child = await run.wait(Patience(loop.time() + seconds))
            if child is not None or run.is_finished:
                return child

    def _row(self, step: _Step, checked: Checked, number: int) -> ChildRow:
        parent = step.attempt.action
        place = Submission(
            queue=parent.queue or QUEUE_DEFAULT,
            priority=parent.priority if parent.is_submitted else PRIORITY_DEFAULT,
        )
        path = step.name if number == 1 else f"{step.name}#{number}"
        entry = step.attempt.entry
        row: dict[str, Any] = dict(new_row(self._kernel.journal, checked, place, None))
        if step.attempt.steps is None:
            # Nobody begins it once its parent's time is over, and no attempt of it is longer than that.
            left = step.attempt.time_left()
            row |= {
                "attempt_timeout_seconds": min(checked.clocks.attempt_seconds, left),
                "queue_delay_seconds": min(row["queue_delay_seconds"] or left, left),
            }
        row |= {
            "action_id": child_id(parent.action_id, path),
            "parent_id": parent.action_id,
            "parent_lease_id": parent.lease_id,
            "step": step.name,
            "number": number,
            "step_path": path,
        }
        if entry is not None:
            row["entry_ordinal"] = entry[0]
        if checked.terms is not None:
            row["deliveries"] = requested(self._kernel.journal.callbacks, row)
        return cast(ChildRow, row)

    async def _met(self, step: _Step, row: ChildRow, *, ahead: bool) -> Action | None:
        """The child that is there; or why there is none: None, if the entry that makes it was not known to be durable
        when it was asked for. Raises LeaseLost, Cancelled, JournalMismatch, ChildLimit.
        """
        parent = step.attempt.action
        tenant = parent.requester.tenant
        async with self._kernel.journal.pool.connection() as connection:
            child = await actions.get(connection, tenant, row["action_id"], full=False)
            stored = await actions.get(connection, tenant, parent.action_id, full=False)
            deep = 0
            if parent.parent_id is not None:
                deep = await lineage.find_depth(connection, tenant, parent.parent_id, parent.action_id)
        if child is not None:
            _check_same(step, child)
            return child
        self._check_held(parent, stored)
        if deep >= DEPTH_MAX:
            raise ChildLimit(limit="depth", limit_max=DEPTH_MAX)
        if not ahead:
            raise LeaseLost
        return None

    async def _end(self, step: _Step, child: Action) -> Action:
        """The child, terminal or ambiguous, with its output. Raises Cancelled, Parked."""
        journal, attempt = self._kernel.journal, step.attempt
        action_id, heard = child.action_id, True
        with nullcontext() if attempt.steps is None else attempt.steps.waits_for(step.name, child):
            while True:
                subscription = journal.hub.subscribe(action_id)
                try:
                    attempt.check_wanted()
                    stored = await self._look(step, action_id, heard=heard)
                    if stored is not None and await self._is_answer(attempt, stored):
                        return stored
                    await journal.hub.wait(action_id, subscription, journal.poll_seconds)
                    heard = subscription.done()
                finally:
                    journal.hub.unsubscribe(action_id, subscription)

    async def _look(self, step: _Step, action_id: str, *, heard: bool) -> Action | None:
        """Once it has ended, and nobody is asked about it any more. Raises Parked, if nobody here can hurry it, nor
        what else is waited for.
        """
        attempt = step.attempt
        if attempt.steps is not None:
            seen = await attempt.steps.look(step.name, action_id, heard=heard)
            if seen is None:
                return None
            if not seen.has_ended:
                attempt.park_if_quiet()
                return None
        return await self._read(attempt.action.requester.tenant, action_id, attempt.steps is not None)

    async def _read(self, tenant: str, action_id: str, ended: bool) -> Action | None:
        """Once it has ended, which may be known: then without a look before the payload is read."""
        try:
            async with self._kernel.journal.pool.connection() as connection:
                child = await actions.get(connection, tenant, action_id, full=ended)
                if not ended and child is not None and _has_ended(child):
                    child = await actions.get(connection, tenant, action_id, full=True)
        except StoreUnavailable:
            return None
        # It may have been redriven since.
        return child if child is not None and _has_ended(child) else None

    async def _is_answer(self, attempt: Attempt, child: Action) -> bool:
        """A child that was asked to stop may have been so with its parent, who must not take that for a failure of the
        child, but stop. False: the store is away.

        Raises LeaseLost, Cancelled."""
        if child.cancel_requested_time_us is None or child.state is ActionState.SUCCEEDED:
            return True
        parent = attempt.action
        try:
            async with self._kernel.journal.pool.connection() as connection:
                stored = await actions.get(connection, parent.requester.tenant, parent.action_id, full=False)
        except StoreUnavailable:
            return False
        self._check_held(parent, stored)
        return True

    def _check_held(self, parent: Action, stored: Action | None) -> None:
        """Raises LeaseLost, Cancelled."""
        if stored is None or stored.lease_id != parent.lease_id:
            raise LeaseLost
        if stored.cancel_requested_time_us is not None:
            deliver_cancel(self._kernel.engine, parent.action_id)
            raise Cancelled

    async def _pause(self) -> None:
        await asyncio.sleep(self._kernel.journal.poll_seconds)


def _has_ended(child: Action) -> bool:
    return child.state in TERMINAL or child.state is ActionState.AMBIGUOUS


def is_superseded(parent: Action, tried: Tried) -> bool:
    """It has ended without an effect, for an earlier will; or for an earlier attempt, before it began."""
    child = tried.action
    if parent.effect_class == "COMPOSED" and tried.generation == parent.generation:
        # It goes on over its attempts: what was told to it once is so.
        return False
    failed = child.state in TERMINAL and child.state is not ActionState.SUCCEEDED
    if not failed or child.effect not in (None, EffectState.NOT_DONE):
        return False
    return tried.generation < parent.generation or (child.attempt == 0 and tried.attempt < parent.attempt)


def _check_effect(parent: Action, checked: Checked) -> None:
    """Who asks for a READ repeats it freely, and must not repeat the effects of others by it. Raises
    ContractViolation.
    """
    capability = checked.capability
    if parent.effect_class == "READ" and capability.contract.effect != "READ":
        raise ContractViolation(
            capability=capability.name,
            rule="read_calls_effect",
            detail=f"{parent.capability} is declared to have no effect, so it calls nothing that has one.",
        )


def _check_pinned(step: _Step, checked: Checked) -> None:
    """Raises ContractViolation: what has the name and version by now is not what was meant."""
    capability = checked.capability
    if step.contract_digest not in ("", capability.contract_digest):
        raise ContractViolation(
            capability=capability.name,
            rule="pinned_digest",
            detail=f"Version {capability.version} has another contract than when the run began.",
        )


def _check_same(step: _Step, child: Action) -> None:
    """Raises JournalMismatch."""
    asked = step.call.invocation
    same = child.capability == asked.capability and child.input_digest == step.input_digest
    if not same or (asked.version and asked.version != child.version):
        raise JournalMismatch(step_path=child.step_path, action_id=child.action_id)
