"""What a client asks for about queues, servers and deliveries. `AsyncClient` has all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from placet.aio_sender import AsyncSender
from placet.delivery_requests import deliveries_request, redeliver_request
from placet.stream import READ_SECONDS
from placet.v1 import operations_service_pb2 as pb


class AsyncOperationsCalls(AsyncSender):
    """What it sends, beside all that the client does."""

    async def queues(self, tenant: str = "", *, timeout: float = READ_SECONDS) -> Sequence[pb.Queue]:
        """What waits, by queue. `tenant` "-": of all tenants, for operators."""
        response = await self._ask("ListQueues", pb.ListQueuesRequest(tenant=tenant), timeout)
        queues: Sequence[pb.Queue] = response.queues
        return queues

    def servers(self, *, page_size: int = 0, timeout: float = READ_SECONDS) -> AsyncIterator[pb.Server]:
        """Those at work on the store, in no particular order; for operators. Pages are fetched as needed."""
        return self._pages("ListServers", pb.ListServersRequest(page_size=page_size), "servers", timeout)

    async def pause_queue(
        self, queue: str, *, reason: str = "", tenant: str = "", timeout: float = READ_SECONDS
    ) -> pb.Queue:
        """Nothing of it begins any more; what runs goes on, and what is submitted is stored. `tenant` "-": of all
        tenants, for operators."""
        request = pb.PauseQueueRequest(queue=queue, reason=reason, tenant=tenant)
        paused: pb.Queue = (await self._ask("PauseQueue", request, timeout)).queue
        return paused

    async def resume_queue(self, queue: str, *, tenant: str = "", timeout: float = READ_SECONDS) -> pb.Queue:
        """Takes back the pause for the same `tenant`; no error if there is none."""
        request = pb.ResumeQueueRequest(queue=queue, tenant=tenant)
        resumed: pb.Queue = (await self._ask("ResumeQueue", request, timeout)).queue
        return resumed

    def deliveries(
        self,
        *,
        states: Iterable[str] = (),
        target: str = "",
        action_id: str = "",
        tenant: str = "",
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> AsyncIterator[pb.Delivery]:
        """What receivers are told of, newest first, without what they are told; `states` are words such as "dead".
        Pages are fetched as needed. `tenant` "-": of all tenants, for operators."""
        request = deliveries_request(states, target, action_id, tenant, page_size)
        return self._pages("ListDeliveries", request, "deliveries", timeout)

    async def delivery(
        self, delivery_id: str, *, tenant: str = "", timeout: float = READ_SECONDS
    ) -> pb.Delivery:
        """One of them, with what is told if it is the own tenant's."""
        request = pb.GetDeliveryRequest(tenant=tenant, delivery_id=delivery_id)
        found: pb.Delivery = (await self._ask("GetDelivery", request, timeout)).delivery
        return found

    async def redeliver(
        self, delivery_id: str, *, key: str | None = None, timeout: float = READ_SECONDS
    ) -> pb.Delivery:
        """Send it out again under its id, whatever became of it. `key` ties resends together; without one a fresh key
        is made."""
        request = redeliver_request(delivery_id, key)
        sent: pb.Delivery = (await self._ask("RedeliverCallback", request, timeout)).delivery
        return sent
