"""Requests about deliveries of callbacks, from plain arguments. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from placet.v1 import operations_service_pb2


def deliveries_request(
    states: Iterable[str], target: str, action_id: str, tenant: str, page_size: int
) -> operations_service_pb2.ListDeliveriesRequest:
    """`states` are words such as "dead", in either case. Raises ValueError for one that does not exist."""
    known = operations_service_pb2.DeliveryState
    return operations_service_pb2.ListDeliveriesRequest(
        tenant=tenant,
        page_size=page_size,
        filter=operations_service_pb2.DeliveryFilter(
            states=[known.Value("DELIVERY_STATE_" + state.upper()) for state in states],
            target=target,
            action_id=action_id,
        ),
    )


def redeliver_request(delivery_id: str, key: str | None) -> operations_service_pb2.RedeliverCallbackRequest:
    return operations_service_pb2.RedeliverCallbackRequest(
        delivery_id=delivery_id, idempotency_key=str(uuid.uuid4()) if key is None else key
    )
