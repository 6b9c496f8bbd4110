"""What others are told of approvals: ids, names and states, never inputs, nor what people wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placet_server.core.publication.callback import Callbacks
from placet_server.model.callback import (
    APPROVAL_DECIDED,
    APPROVAL_ENDED,
    APPROVAL_ESCALATED,
    APPROVAL_REQUESTED,
    Callback,
    data_text,
    time_text,
)
from placet_server.model.decision import Approval, ApprovalState, Decision
from placet_server.store.batch_item import DeliveryPart


def requested(callbacks: Callbacks, row: Mapping[str, Any]) -> list[DeliveryPart]:
    """That an action waits for people, as `row` is about to say: for the statement that stores it, which adds when its
    approval expires.
    """
    if not callbacks.targets:
        return []
    callback = Callback(
        tenant=row["tenant"],
        type=APPROVAL_REQUESTED,
        subject=f"approvals/{row['approval_id']}",
        key=ApprovalState.PENDING.value,
        action_id=row["action_id"],
        data={
            "action_id": row["action_id"],
            "approval_id": row["approval_id"],
            "capability": row["capability"],
            "state": ApprovalState.PENDING.value,
            "title": row["title"],
        },
    )
    return [
        DeliveryPart(
            delivery_id=callback.delivery_id(target),
            target=target,
            type=callback.type,
            subject=callback.subject,
            event_id=callback.event_id,
            data=data_text(callback.data),
            attempts_max=callbacks.attempts_max,
        )
        for target in sorted(callbacks.wanting(callback), key=callback.delivery_id)
    ]


def requested_again(approval: Approval) -> Callback:
    """The same of one that is there."""
    state = ApprovalState.PENDING
    return _callback(approval, APPROVAL_REQUESTED, state.value, _facts(approval, state))


def escalated(approval: Approval) -> Callback:
    """That nobody has decided it in time, and more people may."""
    state = ApprovalState.PENDING
    return _callback(approval, APPROVAL_ESCALATED, state.value, _facts(approval, state))


def decided(
    approval: Approval, decision: Decision, state: ApprovalState, *, taken_back: bool = False
) -> Callback:
    """That somebody has said yes or no, or has taken that back, which has brought it into this state."""
    extra = {
        "completes": state is not ApprovalState.PENDING and not taken_back,
        "decision_id": decision.decision_id,
        "taken_back": taken_back,
        "verdict": decision.verdict.value,
        "voter": decision.voter,
    }
    key = f"{decision.decision_id} taken back" if taken_back else decision.decision_id
    return _callback(approval, APPROVAL_DECIDED, key, _facts(approval, state) | extra)


def ended(approval: Approval, state: ApprovalState) -> Callback:
    """That nobody decides it any more. One that was granted may yet come to another end, before its action begins."""
    return _callback(approval, APPROVAL_ENDED, state.value, _facts(approval, state))


def _callback(approval: Approval, type_: str, key: str, data: dict[str, object]) -> Callback:
    return Callback(
        tenant=approval.tenant,
        type=type_,
        subject=f"approvals/{approval.approval_id}",
        key=key,
        action_id=approval.action_id,
        data=data,
    )


def _facts(approval: Approval, state: ApprovalState) -> dict[str, object]:
    return {
        "action_id": approval.action_id,
        "approval_id": approval.approval_id,
        "capability": approval.capability,
        "expire_time": time_text(approval.expire_time_us),
        "state": state.value,
        "title": approval.title,
    }
