"""ApprovalService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from placet.v1 import approval_service_pb2 as pb
from placet_server.core.decision.claim import CLAIM_SECONDS_DEFAULT, claim, release
from placet_server.core.decision.decide import decide
from placet_server.core.decision.revoke import RevokeCommand, revoke
from placet_server.core.decision.view import Onlooker, list_approvals, view_of
from placet_server.core.decision.voter import voter_of
from placet_server.core.decision.watch import watch_approvals
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.caller import SENSITIVE_SCOPE, Caller
from placet_server.model.capability import Capability
from placet_server.model.errors import PlacetError
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.rpc.call import Rpc, closing
from placet_server.rpc.convert.decision import answer_of, approval_message, decide_of, query_of
from placet_server.rpc.convert.event import event_message
from placet_server.rpc.convert.time import seconds
from placet_server.rpc.page import expiry_position, expiry_token, fitting
from placet_server.rpc.permission import DECIDE_SCOPE, may
from placet_server.rpc.status import status_message
from placet_server.rpc.validation import Validation


class ApprovalServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._check_item = Validation().item_check_of(pb.DecideApprovalRequest)

    async def get_approval(self, rpc: Rpc[pb.GetApprovalRequest]) -> pb.GetApprovalResponse:
        view = await view_of(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            rpc.request.approval_id,
            self._capability_of,
        )
        rpc.action_id = view.action.action_id
        return pb.GetApprovalResponse(approval=approval_message(view))

    async def list_approvals(self, rpc: Rpc[pb.ListApprovalsRequest]) -> pb.ListApprovalsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        page = await list_approvals(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            query_of(request, expiry_position(request, tenant)),
            self._capability_of,
        )
        messages = fitting(map(approval_message, page.views))
        after = page.next_after
        if len(messages) < len(page.views):
            last = page.views[len(messages) - 1].approval
            after = last.expire_time_us, last.approval_id
        return pb.ListApprovalsResponse(
            approvals=messages, next_page_token=expiry_token(request, tenant, after)
        )

    async def decide_approval(self, rpc: Rpc[pb.DecideApprovalRequest]) -> pb.DecideApprovalResponse:
        view = await decide(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            decide_of(rpc.request),
            self._capability_of,
        )
        rpc.action_id = view.action.action_id
        return pb.DecideApprovalResponse(approval=approval_message(view))

    async def revoke_decision(self, rpc: Rpc[pb.RevokeDecisionRequest]) -> pb.RevokeDecisionResponse:
        request = rpc.request
        command = RevokeCommand(
            approval_id=request.approval_id, decision_id=request.decision_id, reason=request.reason
        )
        who = await self._onlooker(rpc.caller)
        view = await revoke(self._kernel.journal, who, command, self._capability_of)
        rpc.action_id = view.action.action_id
        return pb.RevokeDecisionResponse(approval=approval_message(view))

    async def provide_input(self, rpc: Rpc[pb.ProvideInputRequest]) -> pb.ProvideInputResponse:
        view = await decide(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            answer_of(rpc.request),
            self._capability_of,
        )
        rpc.action_id = view.action.action_id
        return pb.ProvideInputResponse(approval=approval_message(view))

    async def batch_decide_approvals(
        self, rpc: Rpc[pb.BatchDecideApprovalsRequest]
    ) -> pb.BatchDecideApprovalsResponse:
        results = [await self._decided(rpc.caller, item) for item in rpc.request.items]
        return pb.BatchDecideApprovalsResponse(results=results)

    async def watch_approvals(
        self, rpc: Rpc[pb.WatchApprovalsRequest]
    ) -> AsyncIterator[pb.WatchApprovalsResponse]:
        request = rpc.request
        watched = watch_approvals(
            self._kernel.journal,
            rpc.caller,
            await self._onlooker(rpc.caller),
            request.after_cursor,
            self._capability_of,
            capabilities=request.capabilities,
            eligible_only=request.eligible_only,
            from_now=request.from_now,
        )
        async with closing(watched) as news:
            async for event, view in news:
                response = pb.WatchApprovalsResponse(event=event_message(event))
                if view is not None:
                    response.approval.CopyFrom(approval_message(view))
                yield response

    async def claim_approval(self, rpc: Rpc[pb.ClaimApprovalRequest]) -> pb.ClaimApprovalResponse:
        request = rpc.request
        ttl_seconds = seconds(request.ttl) if request.HasField("ttl") else CLAIM_SECONDS_DEFAULT
        view = await claim(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            request.approval_id,
            ttl_seconds,
            self._capability_of,
        )
        rpc.action_id = view.action.action_id
        return pb.ClaimApprovalResponse(approval=approval_message(view))

    async def release_approval(self, rpc: Rpc[pb.ReleaseApprovalRequest]) -> pb.ReleaseApprovalResponse:
        view = await release(
            self._kernel.journal,
            await self._onlooker(rpc.caller),
            rpc.request.approval_id,
            self._capability_of,
        )
        rpc.action_id = view.action.action_id
        return pb.ReleaseApprovalResponse(approval=approval_message(view))

    async def _decided(self, caller: Caller, item: pb.DecideApprovalRequest) -> pb.BatchDecideResult:
        """What is wrong with one is told of that one alone."""
        try:
            self._check_item(item)
            view = await decide(
                self._kernel.journal, await self._onlooker(caller), decide_of(item), self._capability_of
            )
        except PlacetError as error:
            return pb.BatchDecideResult(error=status_message(error))
        return pb.BatchDecideResult(approval=approval_message(replace(view, input_json=None)))

    async def _onlooker(self, caller: Caller) -> Onlooker:
        return Onlooker(
            tenant=caller.tenant,
            voter=await voter_of(caller, self._kernel.authority),
            sees_sensitive=may(caller, SENSITIVE_SCOPE),
            may_decide=may(caller, DECIDE_SCOPE),
        )

    async def _capability_of(self, action: Action) -> Capability | None:
        try:
            found = await self._kernel.catalog.find(
                action.requester.tenant, action.capability, action.version, even_withdrawn=True
            )
        except CapabilityNotFound:
            return None
        return found.capability
