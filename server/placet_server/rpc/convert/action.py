"""Action → message, and the filter of ListActions → query."""

from __future__ import annotations

from functools import lru_cache

from placet.v1 import action_pb2, runtime_service_pb2
from placet_server.core.publication.cursor import cursor_of
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action, Requester
from placet_server.model.durability import DurabilityClass
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import PAGE_SIZE_DEFAULT, ActionQuery
from placet_server.rpc.convert.caller import requester_message
from placet_server.rpc.convert.enumeration import ACTION_STATE, ACTION_STATE_MEMBER, DURABILITY
from placet_server.rpc.convert.outcome import fill_outcome
from placet_server.rpc.convert.time import microseconds, set_timestamp

# Capabilities × callers whose common part of an answer is kept.
_COMMON_MAX = 4096


def action_message(action: Action, *, with_payloads: bool = True) -> action_pb2.Action:
    """`with_payloads` False is the BASIC view."""
    message = _common(action)
    _fill(message, action)
    if with_payloads and action.input_json is not None:
        message.input_json = action.input_json
    if with_payloads and action.output_json is not None:
        message.output_json = action.output_json
    return message


def fill_succeeded(message: action_pb2.Action, action: Action) -> None:
    """A succeeded action without its input, in place: the answer of the hot path, half of it copied."""
    common = _common_success(
        action.requester,
        action.capability,
        action.version,
        action.contract_digest,
        action.effect_class,
        action.effect,
        action.attempt,
        action.attempts_max,
        action.durability,
    )
    message.CopyFrom(common)
    _fill(message, action)
    if action.output_json is not None:
        message.output_json = action.output_json


@lru_cache(_COMMON_MAX)
def _common_success(
    requester: Requester,
    capability: str,
    version: str,
    contract_digest: str,
    effect_class: str,
    effect: EffectState | None,
    attempt: int,
    attempts_max: int,
    durability: DurabilityClass,
) -> action_pb2.Action:
    """Shared between calls: copy it, never change it."""
    action = Action(
        action_id="",
        requester=requester,
        capability=capability,
        version=version,
        contract_digest=contract_digest,
        effect_class=effect_class,
        effect=effect,
        attempt=attempt,
        attempts_max=attempts_max,
        durability=durability,
        state=ActionState.SUCCEEDED,
        input_json=None,
        input_digest="",
    )
    return _common(action)


def _common(action: Action) -> action_pb2.Action:
    """What an action has in common with others: its caller, its capability, and how it ended."""
    message = action_pb2.Action(
        requester=requester_message(action.requester),
        capability=action.capability,
        version=action.version,
        contract_digest=action.contract_digest,
        state=ACTION_STATE[action.state],
        attempt=action.attempt,
        attempts_max=action.attempts_max,
        durability=DURABILITY[action.durability],
        generation=1,
    )
    fill_outcome(message.outcome, outcome_of(action))
    return message


def _fill(message: action_pb2.Action, action: Action) -> None:
    """What is an action's own. On the hot path, so nothing is set that is empty anyway."""
    message.action_id = message.outcome.action_id = action.action_id
    message.input_digest = action.input_digest
    message.idempotency_key = action.idempotency_key
    message.cursor = cursor_of(action)
    message.receipt_digest = action.receipt_digest
    if action.labels:
        message.labels.update(action.labels)
    if action.predecessor_id is not None:
        message.predecessor_id = action.predecessor_id
    if action.queue:
        message.queue = action.queue
        message.priority = action.priority
        message.generation = action.generation
    if action.parent_id is not None:
        message.parent_id = action.parent_id
        message.root_id = action.root_id or ""
        message.step_path = action.step_path
    if action.approval_id is not None:
        message.approval_id = action.approval_id
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


def told_to(action: action_pb2.Action, tenant: str) -> action_pb2.Action:
    """As a member of that tenant may see it: of another one's, no words of its handler's. Changes the message."""
    if action.requester.tenant != tenant:
        action.outcome.ClearField("message")
    return action


def query_of(
    request: runtime_service_pb2.ListActionsRequest | runtime_service_pb2.CancelActionsRequest,
    after_action_id: str,
    page_size_default: int = PAGE_SIZE_DEFAULT,
) -> ActionQuery:
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
        parent_id=wanted.parent_id,
        root_id=wanted.root_id,
        queue=wanted.queue,
        agent_runs=wanted.agent_runs,
        page_size=request.page_size or page_size_default,
        after_action_id=after_action_id,
    )
