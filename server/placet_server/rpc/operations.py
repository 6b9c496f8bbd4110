"""OperationsService."""

from __future__ import annotations

from placet.v1 import operations_service_pb2 as pb
from placet_server.core.execution.pause import pause_queue, resume_queue
from placet_server.core.execution.servers import list_servers
from placet_server.core.kernel import Kernel
from placet_server.core.publication.callback import get_delivery, list_deliveries, redeliver
from placet_server.core.recovery.redrive import list_queues
from placet_server.model.caller import OPERATOR_SCOPE
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.callback import delivery_filter_of, delivery_message
from placet_server.rpc.convert.queue import queue_message
from placet_server.rpc.convert.server import server_message
from placet_server.rpc.page import fitting, page_position, token_after
from placet_server.rpc.permission import permit, tenant_of


class OperationsServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def list_queues(self, rpc: Rpc[pb.ListQueuesRequest]) -> pb.ListQueuesResponse:
        tenant = tenant_of(rpc.caller, rpc.request.tenant)
        depths = await list_queues(self._kernel.journal, tenant=tenant)
        return pb.ListQueuesResponse(queues=map(queue_message, depths))

    async def list_servers(self, rpc: Rpc[pb.ListServersRequest]) -> pb.ListServersResponse:
        request, caller = rpc.request, rpc.caller
        permit(caller, OPERATOR_SCOPE)
        size = request.page_size or PAGE_SIZE_DEFAULT
        found = await list_servers(
            self._kernel.journal, after=page_position(request, caller.tenant), page_size=size
        )
        servers = fitting(server_message(each, self._kernel.boot_id) for each in found)
        token = token_after(request, caller.tenant, servers, len(found), lambda last: last.server_id)
        return pb.ListServersResponse(servers=servers, next_page_token=token)

    async def pause_queue(self, rpc: Rpc[pb.PauseQueueRequest]) -> pb.PauseQueueResponse:
        request = rpc.request
        tenant = tenant_of(rpc.caller, request.tenant)
        depth = await pause_queue(
            self._kernel.journal, rpc.caller, request.queue, tenant=tenant, reason=request.reason
        )
        return pb.PauseQueueResponse(queue=queue_message(depth))

    async def resume_queue(self, rpc: Rpc[pb.ResumeQueueRequest]) -> pb.ResumeQueueResponse:
        tenant = tenant_of(rpc.caller, rpc.request.tenant)
        depth = await resume_queue(self._kernel.journal, rpc.request.queue, tenant=tenant)
        return pb.ResumeQueueResponse(queue=queue_message(depth))

    async def list_deliveries(self, rpc: Rpc[pb.ListDeliveriesRequest]) -> pb.ListDeliveriesResponse:
        request, caller = rpc.request, rpc.caller
        size = request.page_size or PAGE_SIZE_DEFAULT
        found = await list_deliveries(
            self._kernel.journal,
            tenant=tenant_of(caller, request.tenant),
            matching=delivery_filter_of(request.filter),
            page_size=size,
            before=page_position(request, caller.tenant),
        )
        deliveries = fitting(delivery_message(each, with_data=False) for each in found)
        token = token_after(request, caller.tenant, deliveries, len(found), lambda last: last.delivery_id)
        return pb.ListDeliveriesResponse(deliveries=deliveries, next_page_token=token)

    async def get_delivery(self, rpc: Rpc[pb.GetDeliveryRequest]) -> pb.GetDeliveryResponse:
        request, caller = rpc.request, rpc.caller
        tenant = tenant_of(caller, request.tenant)
        found = await get_delivery(self._kernel.journal, tenant, request.delivery_id)
        message = delivery_message(found, with_data=found.tenant == caller.tenant)
        return pb.GetDeliveryResponse(delivery=message)

    async def redeliver_callback(self, rpc: Rpc[pb.RedeliverCallbackRequest]) -> pb.RedeliverCallbackResponse:
        request = rpc.request
        sent = await redeliver(
            self._kernel.journal, rpc.caller, request.delivery_id, key=request.idempotency_key
        )
        return pb.RedeliverCallbackResponse(delivery=delivery_message(sent, with_data=True))
