"""Deliveries of callbacks, to model and back."""

from __future__ import annotations

from placet.v1 import operations_service_pb2 as pb
from placet_server.model.callback import Delivery, DeliveryFilter, DeliveryState
from placet_server.rpc.convert.enumeration import members, numbers
from placet_server.rpc.convert.time import timestamp

STATE = numbers(pb.DeliveryState, "DELIVERY_STATE_", DeliveryState)
STATE_MEMBER = members(pb.DeliveryState, "DELIVERY_STATE_", DeliveryState)


def delivery_filter_of(message: pb.DeliveryFilter) -> DeliveryFilter:
    """The message has passed validation."""
    return DeliveryFilter(
        states=tuple(STATE_MEMBER[state] for state in message.states),
        target=message.target,
        action_id=message.action_id,
    )


def delivery_message(delivery: Delivery, *, with_data: bool) -> pb.Delivery:
    is_pending = delivery.state is DeliveryState.PENDING
    return pb.Delivery(
        delivery_id=delivery.delivery_id,
        tenant=delivery.tenant,
        target=delivery.target,
        type=delivery.type,
        subject=delivery.subject,
        event_id=delivery.event_id,
        action_id=delivery.action_id or "",
        state=STATE[delivery.state],
        generation=delivery.generation,
        attempts=delivery.attempts,
        attempts_max=delivery.attempts_max,
        create_time=timestamp(delivery.create_time_us),
        next_time=timestamp(delivery.next_time_us) if is_pending else None,
        end_time=None if delivery.end_time_us is None else timestamp(delivery.end_time_us),
        last_status=delivery.last_status,
        last_error=delivery.last_error,
        data_json=delivery.data if with_data else "",
        in_flight=delivery.lease_id is not None,
    )
