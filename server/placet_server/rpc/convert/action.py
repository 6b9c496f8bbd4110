"""Action → message, and the filter of ListActions → query."""

from __future__ import annotations

from placet.v1 import action_pb2, runtime_service_pb2
from placet_server.core.publication.cursor import cursor_of
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action
from placet_server.model.query import PAGE_SIZE_DEFAULT, ActionQuery
from placet_server.rpc.convert.caller import requester_message
from placet_server.rpc.convert.enumeration import ACTION_STATE, ACTION_STATE_MEMBER, DURABILITY
from placet_server.rpc.convert.outcome import outcome_message
from placet_server.rpc.convert.time import microseconds, set_timestamp


def action_message(
    action: Action, *, with_input: bool = True, with_payloads: bool = True
) -> action_pb2.Action:
    """`with_input` False leaves out what the caller has just sent; `with_payloads` False is the BASIC view."""
    message = action_pb2.Action(
        action_id=action.action_id,
        capability=action.capability,
        version=action.version,
        contract_digest=action.contract_digest,
        state=ACTION_STATE[action.state],
        outcome=outcome_message(outcome_of(action)),
        input_json=(action.input_json or "") if with_input and with_payloads else "",
        input_digest=action.input_digest,
        output_json=(action.output_json or "") if with_payloads else "",
        idempotency_key=action.idempotency_key,
        requester=requester_message(action.requester),
        attempt=action.attempt,
        attempts_max=action.attempts_max,
        labels=action.labels,
        durability=DURABILITY[action.durability],
        cursor=cursor_of(action),
        receipt_digest=action.receipt_digest,
        predecessor_id=action.predecessor_id or "",
        provider_operation=action.provider_operation,
    )
    _set_times(message, action)
    return message


def _set_times(message: action_pb2.Action, action: Action) -> None:
    set_timestamp(message.create_time, action.create_time_us)
    if action.start_time_us is not None:
        set_timestamp(message.start_time, action.start_time_us)
    if action.settle_time_us is not None:
        set_timestamp(message.settle_time, action.settle_time_us)
    if action.ready_time_us is not None:
        set_timestamp(message.ready_time, action.ready_time_us)
    if action.deadline_us is not None:
        set_timestamp(message.deadline, action.deadline_us)
    if action.cancel_requested_time_us is not None:
        set_timestamp(message.cancel_requested_time, action.cancel_requested_time_us)


def query_of(request: runtime_service_pb2.ListActionsRequest, after_action_id: str) -> ActionQuery:
    wanted = request.filter
    return ActionQuery(
        capabilities=tuple(wanted.capabilities),
        states=tuple(ACTION_STATE_MEMBER[number] for number in wanted.states),
        requester=wanted.requester,
        labels=dict(wanted.labels),
        create_time_min_us=microseconds(wanted.create_time_min)
        if wanted.HasField("create_time_min")
        else None,
        create_time_max_us=microseconds(wanted.create_time_max)
        if wanted.HasField("create_time_max")
        else None,
        action_id_prefix=wanted.action_id_prefix,
        page_size=request.page_size or PAGE_SIZE_DEFAULT,
        after_action_id=after_action_id,
    )
