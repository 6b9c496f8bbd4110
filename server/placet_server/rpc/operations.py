"""OperationsService."""

from __future__ import annotations

from placet.v1 import operations_service_pb2 as pb
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import list_queues
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.queue import queue_message
from placet_server.rpc.permission import tenant_of


class OperationsServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def list_queues(self, rpc: Rpc[pb.ListQueuesRequest]) -> pb.ListQueuesResponse:
        tenant = tenant_of(rpc.caller, rpc.request.tenant)
        depths = await list_queues(self._kernel.journal, tenant=tenant)
        return pb.ListQueuesResponse(queues=map(queue_message, depths))
