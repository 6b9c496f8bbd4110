"""Policies looked at again when a stored action is about to begin: after its claim, before its handler.

The verdict that the action was admitted with names what decided, and nothing else, so as long as that says the same the
action goes on, whatever else has changed. What is forbidden by now is REFUSED. What people would have to say yes to by
another verdict is asked anew, and they are told what it follows and what is different; but not once an approval was
consumed, which covers all attempts. What may have done something already goes on: to stop it would make nothing undone,
and hide what became of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import orjson

from placet_server.core.decision.policy import Policies
from placet_server.core.decision.policy_slice import Question
from placet_server.core.decision.refusal import refusal_of
from placet_server.core.decision.request import request_of
from placet_server.core.execution.begin import Looked
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.judgement import judge, withdrawn_verdict
from placet_server.core.publication.approval_callback import requested_again
from placet_server.core.publication.callback import enqueue
from placet_server.core.publication.gated import Gated, end_approval, ended_fact, tell
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.approval import Terms, join
from placet_server.model.caller import caller_of
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.decision import ApprovalState
from placet_server.model.errors import StoreUnavailable
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.json_text import canonicalize
from placet_server.model.lifecycle import ActionState, check_transition
from placet_server.model.outcome import EffectState
from placet_server.model.policy import PolicyVerdict
from placet_server.model.policy_schema import Offered
from placet_server.store import action as actions
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves
from placet_server.store import policy as rows
from placet_server.store import recheck as again
from placet_server.store.action_record import requester_document
from placet_server.store.batch_item import ApprovalPart
from placet_server.store.connection import Connection

OfferedOf = Callable[[Action], Awaitable[Offered]]

GO = Looked(may_begin=True)
DIFFERENCE_LENGTH_MAX = 2048
_INPUT_BYTES_MAX = 4 * 2**20


class Recheck:
    """One per process; belongs to its event loop."""

    def __init__(self, policies: Policies, journal: Journal, offered_of: OfferedOf) -> None:
        self._policies = policies
        self._journal = journal
        self._offered_of = offered_of

    async def look(self, action: Action) -> Looked:
        """See `execution.begin.Rechecker`."""
        try:
            offered = await self._offered_of(action)
        except CapabilityNotFound:
            return Looked(may_begin=False, verdict=withdrawn_verdict(action))
        verdict = self._policies.known(offered.capability, caller_of(action.requester))
        if verdict is None:
            verdict = await self._policies.decide(await self._question(action, offered))
        if verdict.digest == action.verdict_digest or _goes_on(action):
            return GO
        if not verdict.allowed:
            await self._note(action, offered, verdict)
            return Looked(may_begin=False, verdict=_refused(action, verdict))
        terms = _terms(offered.capability, verdict)
        # A question that people have answered hands their answer on, and does nothing else.
        if terms is None or offered.capability.kind is CapabilityKind.HUMAN:
            return GO
        return await self._ask_anew(action, offered.capability, verdict, terms)

    async def _note(self, action: Action, offered: Offered, verdict: PolicyVerdict) -> None:
        """Who refused it, for whoever asks why: before it ends so."""
        question = await self._question(action, offered)
        refusal = refusal_of(action.action_id, question, action.input_digest, verdict)
        async with self._journal.pool.connection() as connection:
            tenant = action.requester.tenant
            await rows.put_refusal(connection, tenant, refusal, self._journal.clock.now())

    async def _question(self, action: Action, offered: Offered) -> Question:
        """As it was asked when the action was admitted."""
        input_json, parent = action.input_json, ""
        if input_json is None or action.parent_id is not None:
            async with self._journal.pool.connection() as connection:
                asked = await rows.list_inputs(connection, action.requester.tenant, [action.action_id])
            stored = asked[action.action_id]
            input_json, parent = stored.input_json if input_json is None else input_json, stored.parent
        value = orjson.loads(input_json)
        return Question(caller_of(action.requester), offered, value, action.labels, parent)

    async def _ask_anew(
        self, action: Action, capability: Capability, verdict: PolicyVerdict, terms: Terms
    ) -> Looked:
        """One tx, which locks the action, then its approval."""
        check_transition(action.state, ActionState.WAITING)
        journal, tenant = self._journal, action.requester.tenant
        part = await self._part(action, capability, verdict, terms)
        async with journal.pool.tx() as connection:
            if not await moves.lock_action(connection, tenant, action.action_id):
                return Looked(may_begin=False)
            before = None
            if action.approval_id is not None:
                before = await moves.lock(connection, tenant, action.approval_id)
            held = await actions.get(connection, tenant, action.action_id, full=False)
            now = await moves.time_of(connection, journal.clock.now())
            gated = None
            if before is not None:
                gated = Gated(action=held or action, approval=before, now=now, callbacks=journal.callbacks)
            if gated is not None and not _is_superseded(gated):
                # Consumed, it covers this attempt, too; ended or late, it is what ends the action.
                return GO
            moved = held is not None and _may_wait(held, action)
            if moved:
                if gated is not None:
                    await _withdraw(connection, gated)
                await self._wait_anew(connection, action, part, verdict, now)
        if not moved:
            return await self._not_moved(action)
        journal.hub.publish(action.action_id)
        journal.callbacks.ring()
        return Looked(may_begin=False)

    async def _wait_anew(
        self,
        connection: Connection,
        action: Action,
        part: ApprovalPart,
        verdict: PolicyVerdict,
        now: datetime,
    ) -> None:
        tenant, callbacks = action.requester.tenant, self._journal.callbacks
        if not await again.move_to_waiting(connection, action, part, verdict.digest, now):
            raise RuntimeError("what is locked has moved")
        old = await rows.get_verdicts(connection, tenant, [action.verdict_digest or ""])
        await again.put_approval(
            connection,
            action,
            part,
            predecessor_id=action.approval_id,
            difference=_difference(old.get(action.verdict_digest or ""), verdict),
            now=now,
        )
        asked = await approvals.get(connection, tenant, part["approval_id"])
        assert asked is not None, "it was just written"
        await enqueue(callbacks, connection, requested_again(asked), now)

    async def _part(
        self, action: Action, capability: Capability, verdict: PolicyVerdict, terms: Terms
    ) -> ApprovalPart:
        question = action.input_json
        if question is None:
            async with self._journal.pool.connection() as connection:
                asked = await rows.list_inputs(connection, action.requester.tenant, [action.action_id])
            question = asked[action.action_id].input_json
        row = {
            "tenant": action.requester.tenant,
            "subject": action.requester.subject,
            "caller": orjson.dumps(requester_document(action.requester)).decode(),
            "capability": action.capability,
            "version": action.version,
            "contract_digest": action.contract_digest,
            "input_digest": action.input_digest,
        }
        canonical = canonicalize(question, bytes_max=_INPUT_BYTES_MAX)
        part = request_of(row, capability, canonical, terms, verdict.digest)
        if action.approval_id is not None:
            body = orjson.loads(part["waiting_body"]) | {"predecessor_id": action.approval_id}
            part["waiting_body"] = orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()
        return part

    async def _not_moved(self, action: Action) -> Looked:
        """Its lease is gone, or somebody has asked to cancel it meanwhile."""
        async with self._journal.pool.connection() as connection:
            stored = await actions.get(connection, action.requester.tenant, action.action_id, full=True)
        if stored is None or stored.lease_id != action.lease_id:
            return Looked(may_begin=False)
        if stored.cancel_requested_time_us is None:
            raise StoreUnavailable(detail="an action can neither begin nor wait")
        ending = Stopped(cause=StopCause.CANCELLED_BY_CALLER, entered=False)
        at = stored.start_time_us or 0
        return Looked(may_begin=False, verdict=judge(stored.changed(effect_begun=False), ending, now_us=at))


def _goes_on(action: Action) -> bool:
    """Something of it may have happened already: whoever stops it now makes it no safer."""
    return action.effect_unknown or (action.effect_class == "COMPOSED" and action.effect_begun)


def _terms(capability: Capability, verdict: PolicyVerdict) -> Terms | None:
    own, asked = capability.contract.approval, verdict.terms
    if own is None or asked is None:
        return own or asked
    return join(own, asked)


def _refused(action: Action, verdict: PolicyVerdict) -> Verdict:
    """Nothing of it has begun. `cause`: who decided, as the error of a refusal names them."""
    effect = None if action.effect_class == "READ" else EffectState.NOT_DONE
    return Verdict(
        state=ActionState.REFUSED,
        effect=effect,
        reason="POLICY_REFUSED",
        cause=verdict.names or None,
        message=f"The policies in force when it was to begin do not let it happen ({verdict.problem}).",
    )


async def _withdraw(connection: Connection, gated: Gated) -> None:
    """What was allowed before is not what is asked now."""
    state = ApprovalState.WITHDRAWN
    await end_approval(connection, await tell(connection, gated, ended_fact(gated, state)), state)


def _may_wait(held: Action, action: Action) -> bool:
    """`held`: as it is locked. It is its lease holder's still, has done nothing, and is wanted."""
    is_held = held.state is ActionState.RUNNING and held.lease_id == action.lease_id
    return is_held and held.cancel_requested_time_us is None and not held.effect_unknown


def _is_superseded(gated: Gated) -> bool:
    before = gated.approval
    is_usable = before.state is ApprovalState.GRANTED and before.consume_time_us is None
    return is_usable and gated.now_us < before.expire_time_us


def _difference(before: PolicyVerdict | None, after: PolicyVerdict) -> str:
    """For people: what decides now and did not, and the other way round."""
    was = {} if before is None else {each.policy: each.digest for each in before.policies}
    is_ = {each.policy: each.digest for each in after.policies}
    lines = [f"policy {name} has changed" for name in was if name in is_ and was[name] != is_[name]]
    lines += [f"policy {name} does not decide any more" for name in was if name not in is_]
    lines += [f"policy {name} decides now" for name in is_ if name not in was]
    asked = "" if before is None else before.approval
    if asked != after.approval:
        lines.append(f"policies ask for {after.approval or 'nothing'}, before for {asked or 'nothing'}")
    text = "\n".join(lines)
    return text if len(text) <= DIFFERENCE_LENGTH_MAX else text[: DIFFERENCE_LENGTH_MAX - 1] + "…"
