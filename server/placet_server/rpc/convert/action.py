"""Action → message, and the filter of ListActions → query."""

from __future__ import annotations

from placet.v1 import action_pb2, runtime_service_pb2
from placet_server.core.publication.cursor import cursor_of
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action
from placet_server.model.query import PAGE_SIZE_DEFAULT, ActionQuery
from placet_server.rpc.convert.caller import requester_message
from placet_server.rpc.convert.enumeration import ACTION_STATE, ACTION_STATE_MEMBER, DURABILITY
from placet_server.rpc.convert.outcome import fill_outcome
from placet_server.rpc.convert.time import microseconds, set_timestamp


def action_message(action: Action, *, with_payloads: bool = True) -> action_pb2.Action:
    """`with_payloads` False is the BASIC view."""
    message = action_pb2.Action()
    fill_action(message, action, with_input=with_payloads, with_output=with_payloads)
    return message


def fill_action(
    message: action_pb2.Action, action: Action, *, with_input: bool, with_output: bool = True
) -> None:
    """On the hot path: in place, and nothing is set that is empty anyway."""
    message.action_id = action.action_id
    message.capability = action.capability
    message.version = action.version
    message.contract_digest = action.contract_digest
    message.state = ACTION_STATE[action.state]
    message.input_digest = action.input_digest
    message.idempotency_key = action.idempotency_key
    message.attempt = action.attempt
    message.attempts_max = action.attempts_max
    message.durability = DURABILITY[action.durability]
    message.cursor = cursor_of(action)
    message.receipt_digest = action.receipt_digest
    message.requester.CopyFrom(requester_message(action.requester))
    fill_outcome(message.outcome, outcome_of(action))
    if with_input and action.input_json is not None:
        message.input_json = action.input_json
    if with_output and action.output_json is not None:
        message.output_json = action.output_json
    if action.labels:
        message.labels.update(action.labels)
    if action.predecessor_id is not None:
        message.predecessor_id = action.predecessor_id
    if action.provider_operation:
        message.provider_operation = action.provider_operation
    _set_times(message, action)


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
    earliest = microseconds(wanted.create_time_min) if wanted.HasField("create_time_min") else None
    latest = microseconds(wanted.create_time_max) if wanted.HasField("create_time_max") else None
    return ActionQuery(
        capabilities=tuple(wanted.capabilities),
        states=tuple(ACTION_STATE_MEMBER[number] for number in wanted.states),
        requester=wanted.requester,
        labels=dict(wanted.labels),
        create_time_min_us=earliest,
        create_time_max_us=latest,
        action_id_prefix=wanted.action_id_prefix,
        page_size=request.page_size or PAGE_SIZE_DEFAULT,
        after_action_id=after_action_id,
    )
