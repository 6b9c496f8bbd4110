"""RecoveryService."""

from __future__ import annotations

from collections.abc import Sequence

from placet.v1 import recovery_service_pb2 as pb
from placet_server.core.admission.catalog import Catalog
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.recover import Recovery, get_report, list_reports, recover
from placet_server.core.recovery.redrive import AttemptsOf, list_dead_letters, redrive
from placet_server.core.recovery.resolve import list_ambiguous, resolve_ambiguous
from placet_server.core.recovery.wish import ReconcileCommand, reconcile_now
from placet_server.model.action import Action
from placet_server.model.caller import caller_of
from placet_server.model.capability import Capability
from placet_server.model.errors import CapabilityNotFound
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.action import action_message, told_to
from placet_server.rpc.convert.ambiguous import ambiguous_message, reconcile_of, resolve_of
from placet_server.rpc.convert.report import recover_of, report_message
from placet_server.rpc.convert.selection import dead_letter_filter_of, redrive_of, result_message
from placet_server.rpc.page import fitting, page_position, page_token
from placet_server.rpc.permission import tenant_of


class RecoveryServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

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
        is_last = len(actions) < size and len(messages) == len(actions)
        position = "" if is_last else messages[-1].action_id
        return pb.ListDeadLettersResponse(
            actions=messages, next_page_token=page_token(request, caller.tenant, position)
        )

    async def redrive(self, rpc: Rpc[pb.RedriveRequest]) -> pb.RedriveResponse:
        attempts_of = _attempts_by_contract(self._kernel.catalog)
        done = await redrive(self._kernel.journal, rpc.caller, redrive_of(rpc.request), attempts_of)
        return pb.RedriveResponse(results=map(result_message, done))

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
        is_last = len(found) < size and len(effects) == len(found)
        position = "" if is_last else effects[-1].action.action_id
        return pb.ListAmbiguousResponse(
            effects=effects, next_page_token=page_token(request, caller.tenant, position)
        )

    async def resolve_ambiguous(self, rpc: Rpc[pb.ResolveAmbiguousRequest]) -> pb.ResolveAmbiguousResponse:
        command = resolve_of(rpc.request)
        done = await resolve_ambiguous(self._kernel.engine, rpc.caller, command, self._capability_of)
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
        is_last = len(found) < size and len(reports) == len(found)
        position = "" if is_last else reports[-1].report_id
        return pb.ListReportsResponse(
            reports=reports, next_page_token=page_token(request, caller.tenant, position)
        )

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

    async def _capability_of(self, action: Action) -> Capability:
        entry = await self._kernel.catalog.get_capability(
            action.requester.tenant, action.capability, action.version
        )
        return entry.stored.capability


def _attempts_by_contract(catalog: Catalog) -> AttemptsOf:
    """Each contract is read once, as a call may redrive a thousand actions."""
    known: dict[tuple[str, str], int] = {}

    async def attempts_of(action: Action) -> int:
        pinned = action.capability, action.version
        if pinned not in known:
            try:
                entry = await catalog.get_capability(action.requester.tenant, *pinned)
            except CapabilityNotFound:
                return action.attempts_max
            known[pinned] = entry.stored.capability.contract.attempts_max
        return known[pinned]

    return attempts_of
