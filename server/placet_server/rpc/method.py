"""The RPCs of a service, read from its descriptor, each with its handler."""

from __future__ import annotations

import re

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from placet.v1 import (
    approval_service_pb2,
    catalog_service_pb2,
    operations_service_pb2,
    policy_service_pb2,
    recovery_service_pb2,
    runtime_service_pb2,
    session_service_pb2,
)
from placet_server.rpc.call import Load, Method
from placet_server.rpc.permission import SCOPES

# They wait for somebody else's work.
WATCHES = frozenset(
    {
        "/placet.v1.RuntimeService/WaitAction",
        "/placet.v1.RuntimeService/WatchAction",
        "/placet.v1.RuntimeService/WatchEvents",
        "/placet.v1.ApprovalService/WatchApprovals",
    }
)

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


RUNTIME = runtime_service_pb2.DESCRIPTOR.services_by_name["RuntimeService"]
CATALOG = catalog_service_pb2.DESCRIPTOR.services_by_name["CatalogService"]
APPROVAL = approval_service_pb2.DESCRIPTOR.services_by_name["ApprovalService"]
OPERATIONS = operations_service_pb2.DESCRIPTOR.services_by_name["OperationsService"]
POLICY = policy_service_pb2.DESCRIPTOR.services_by_name["PolicyService"]
SESSION = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
RECOVERY = recovery_service_pb2.DESCRIPTOR.services_by_name["RecoveryService"]


def methods(service: ServiceDescriptor, servicer: object) -> list[Method]:
    """Every RPC of the service; `ExecuteStream` is answered by `servicer.execute_stream`.

    Raises AttributeError for an RPC without a handler, KeyError for one without a scope.
    """
    return [
        Method(
            path=(path := f"/{service.full_name}/{rpc.name}"),
            service=service.full_name,
            name=rpc.name,
            request_type=GetMessageClass(rpc.input_type),
            streaming=rpc.server_streaming,
            scope=SCOPES[path],
            load=Load.WATCH if path in WATCHES else Load.CALL,
            handler=getattr(servicer, _HUMP.sub("_", rpc.name).lower()),
        )
        for rpc in service.methods
    ]
