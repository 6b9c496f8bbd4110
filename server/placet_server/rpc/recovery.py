"""RecoveryService."""

from __future__ import annotations

from collections.abc import Sequence

from placet.v1 import recovery_service_pb2 as pb
from placet_server.core.governance.govern import is_known
from placet_server.core.governance.recovery import (
    Redrive,
    ResolveAmbiguous,
    redrive_members,
    resolve_members,
    results_of,
)
from placet_server.core.governance.tools import REDRIVE, RESOLVE_AMBIGUOUS
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.core.recovery.recover import Recovery, get_report, list_reports, recover
from placet_server.core.recovery.redrive import list_dead_letters
from placet_server.core.recovery.resolve import list_ambiguous
from placet_server.core.recovery.wish import ReconcileCommand, reconcile_now
from placet_server.model.action import Action
from placet_server.model.caller import caller_of
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.action import action_message, told_to
from placet_server.rpc.convert.ambiguous import ambiguous_message, reconcile_of, resolve_of
from placet_server.rpc.convert.report import recover_of, report_message
from placet_server.rpc.convert.selection import dead_letter_filter_of, redrive_of, result_message
from placet_server.rpc.governed import governed
from placet_server.rpc.page import fitting, page_position, token_after
from placet_server.rpc.permission import tenant_of


class RecoveryServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._redrives = Redrive(kernel)
        self._resolves = ResolveAmbiguous(kernel)

    async def list_dead_letters(self, rpc: Rpc[pb.ListDeadLettersRequest]) -> pb.ListDeadLettersResponse:
        request, caller = rpc.request, rpc.caller
        size = request.page_size or PAGE_SIZE_DEFAULT
        actions = await list_dead_letters(
            self._kernel.journal,
            tenant=tenant_of(caller, request.tenant),
            matching=dead_letter_filter_of(request.filter),
            page_size=size,
            before=page_position(request, caller.tenant),
        )
        messages = fitting(
            told_to(action_message(action, with_payloads=False), caller.tenant) for action in actions
        )
        token = token_after(request, caller.tenant, messages, len(actions), lambda last: last.action_id)
        return pb.ListDeadLettersResponse(actions=messages, next_page_token=token)

    async def redrive(self, rpc: Rpc[pb.RedriveRequest]) -> pb.RedriveResponse:
        request, command = rpc.request, redrive_of(rpc.request)
        looked = await self._redrives.look(rpc.caller, command)
        key = request.idempotency_key
        # Where nothing would change, nobody needs to be asked; but by its key it may have been done already.
        is_idle = not any(each.changed for each in looked)
        if request.validate_only or (is_idle and not await is_known(self._kernel, rpc.caller, REDRIVE, key)):
            return pb.RedriveResponse(results=map(result_message, looked))
        members = redrive_members(command)
        output = await governed(self._kernel, rpc, REDRIVE, members, idempotency_key=key)
        return pb.RedriveResponse(results=map(result_message, results_of(output)))

    async def list_ambiguous(self, rpc: Rpc[pb.ListAmbiguousRequest]) -> pb.ListAmbiguousResponse:
        request, caller = rpc.request, rpc.caller
        size = request.page_size or PAGE_SIZE_DEFAULT
        found = await list_ambiguous(
            self._kernel.journal,
            tenant=tenant_of(caller, request.tenant),
            capabilities=tuple(request.capabilities),
            page_size=size,
            after=page_position(request, caller.tenant),
        )
        effects = fitting(ambiguous_message(each, caller.tenant) for each in found)
        token = token_after(request, caller.tenant, effects, len(found), lambda last: last.action.action_id)
        return pb.ListAmbiguousResponse(effects=effects, next_page_token=token)

    async def resolve_ambiguous(self, rpc: Rpc[pb.ResolveAmbiguousRequest]) -> pb.ResolveAmbiguousResponse:
        command = resolve_of(rpc.request)
        if command.validate_only:
            done = await self._resolves.look(rpc.caller, command)
        else:
            members = resolve_members(command)
            await governed(self._kernel, rpc, RESOLVE_AMBIGUOUS, members)
            done = await get_action(self._kernel.journal, rpc.caller, command.action_id, full=True)
        return pb.ResolveAmbiguousResponse(action=action_message(done, with_payloads=True))

    async def reconcile(self, rpc: Rpc[pb.ReconcileRequest]) -> pb.ReconcileResponse:
        kernel = self._kernel
        done = await reconcile_now(kernel.journal, rpc.caller, reconcile_of(rpc.request), self._can_be_asked)
        if any(each.changed for each in done) and not rpc.request.validate_only:
            kernel.hurry_reconciler()
        return pb.ReconcileResponse(results=map(result_message, done))

    async def recover(self, rpc: Rpc[pb.RecoverRequest]) -> pb.RecoverResponse:
        kernel = self._kernel
        recovery = Recovery(
            journal=kernel.journal,
            may_declare_dead=kernel.may_declare_dead,
            ask_now=self._ask_now,
            can_be_asked=self._can_be_asked,
        )
        tenant = tenant_of(rpc.caller, rpc.request.tenant)
        report = await recover(recovery, rpc.caller, recover_of(rpc.request, tenant))
        return pb.RecoverResponse(report=report_message(report))

    async def get_report(self, rpc: Rpc[pb.GetReportRequest]) -> pb.GetReportResponse:
        tenant = tenant_of(rpc.caller, rpc.request.tenant)
        report = await get_report(self._kernel.journal, tenant, rpc.request.report_id)
        return pb.GetReportResponse(report=report_message(report))

    async def list_reports(self, rpc: Rpc[pb.ListReportsRequest]) -> pb.ListReportsResponse:
        request, caller = rpc.request, rpc.caller
        size = request.page_size or PAGE_SIZE_DEFAULT
        found = await list_reports(
            self._kernel.journal,
            tenant_of(caller, request.tenant),
            page_size=size,
            before=page_position(request, caller.tenant),
        )
        reports = fitting(map(report_message, found))
        token = token_after(request, caller.tenant, reports, len(found), lambda last: last.report_id)
        return pb.ListReportsResponse(reports=reports, next_page_token=token)

    def _can_be_asked(self, action: Action) -> bool:
        """Of a tool that is not here another server may know more."""
        tool = self._kernel.engine.handlers.find(action.capability, action.version, action.requester.tenant)
        return tool is None or tool.lookup is not None

    async def _ask_now(self, actions: Sequence[Action]) -> int:
        asked = 0
        for action in actions:
            command = ReconcileCommand(action_ids=(action.action_id,))
            requester = caller_of(action.requester)
            (done,) = await reconcile_now(self._kernel.journal, requester, command, self._can_be_asked)
            asked += done.changed
        self._kernel.hurry_reconciler()
        return asked
