"""What can be said in the requests about deliveries."""

from __future__ import annotations

from typing import Any

from placet.v1 import operations_service_pb2

ACTION_ID = "0199b0c0-0000-7000-8000-000000000001"


def with_text(text: str) -> dict[str, tuple[str, Any]]:
    """Each RPC and request that says this somewhere."""
    return {
        "page of deliveries": ("ListDeliveries", deliveries(page_token=text)),
        "tenant of deliveries": ("ListDeliveries", deliveries(tenant=text)),
        "target of deliveries": ("ListDeliveries", deliveries(target=text)),
        "action of deliveries": ("ListDeliveries", deliveries(action_id=text)),
        "delivery": ("GetDelivery", operations_service_pb2.GetDeliveryRequest(delivery_id=text)),
        "tenant of a delivery": (
            "GetDelivery",
            operations_service_pb2.GetDeliveryRequest(delivery_id=ACTION_ID, tenant=text),
        ),
        "delivery to send again": (
            "RedeliverCallback",
            operations_service_pb2.RedeliverCallbackRequest(delivery_id=text),
        ),
        "key of a redelivery": (
            "RedeliverCallback",
            operations_service_pb2.RedeliverCallbackRequest(delivery_id=ACTION_ID, idempotency_key=text),
        ),
    }


def deliveries(
    tenant: str = "", page_token: str = "", **members: Any
) -> operations_service_pb2.ListDeliveriesRequest:
    filter_ = operations_service_pb2.DeliveryFilter(**members)
    return operations_service_pb2.ListDeliveriesRequest(tenant=tenant, page_token=page_token, filter=filter_)
