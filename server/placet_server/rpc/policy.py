"""PolicyService."""

from __future__ import annotations

from typing import Any

from placet.v1 import policy_service_pb2 as pb
from placet_server.core.admission.policy_dry_run import dry_run
from placet_server.core.admission.policy_set import ADMIT_POLICY_SET
from placet_server.core.decision.policy_explain import explain
from placet_server.core.governance.tools import ROLL_BACK_POLICY_SET, policy_sets
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.model.document import written
from placet_server.model.query import PAGE_SIZE_DEFAULT, ActionQuery
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.policy import (
    change_message,
    explanation_message,
    policy_set_message,
    policy_set_of,
    problem_message,
    revision_message,
)
from placet_server.rpc.convert.time import microseconds
from placet_server.rpc.governed import governed
from placet_server.rpc.page import page_position, page_token
from placet_server.rpc.permission import may, owner_of, permit
from placet_server.store.policy import REVISION_MAX

DRY_RUN_PAGE_SIZE_DEFAULT = 100


class PolicyServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._sets = policy_sets(kernel)

    async def validate_policy_set(
        self, rpc: Rpc[pb.ValidatePolicySetRequest]
    ) -> pb.ValidatePolicySetResponse:
        document = policy_set_of(rpc.request.policy_set)
        problems = await self._sets.validate(owner_of(rpc.caller, rpc.request.tenant), document, rpc.caller)
        return pb.ValidatePolicySetResponse(digest=document.digest, problems=map(problem_message, problems))

    async def admit_policy_set(self, rpc: Rpc[pb.AdmitPolicySetRequest]) -> pb.AdmitPolicySetResponse:
        request = rpc.request
        owner, document = owner_of(rpc.caller, request.tenant), policy_set_of(request.policy_set)
        if request.validate_only:
            looked = await self._sets.admit(
                rpc.caller, owner, document, validate_only=True, expected_digest=request.expected_digest
            )
            return pb.AdmitPolicySetResponse(
                revision=looked.revision,
                digest=looked.digest,
                problems=map(problem_message, looked.problems),
            )
        members: Members = {"policy_set": written(document)}
        output = await self._governed(rpc, ADMIT_POLICY_SET, members)
        return pb.AdmitPolicySetResponse(**output)

    async def roll_back_policy_set(
        self, rpc: Rpc[pb.RollBackPolicySetRequest]
    ) -> pb.RollBackPolicySetResponse:
        output = await self._governed(rpc, ROLL_BACK_POLICY_SET, {"revision": rpc.request.revision})
        return pb.RollBackPolicySetResponse(**output)

    async def _governed(self, rpc: Rpc[Any], capability: str, members: Members) -> Any:
        request = rpc.request
        named = {"tenant": request.tenant, "expected_digest": request.expected_digest}
        return await governed(
            self._kernel,
            rpc,
            capability,
            members | {name: text for name, text in named.items() if text},
            idempotency_key=request.idempotency_key,
            again_if_stale=not request.expected_digest,
        )

    async def get_policy_set(self, rpc: Rpc[pb.GetPolicySetRequest]) -> pb.GetPolicySetResponse:
        request = rpc.request
        revision = request.revision if request.HasField("revision") else None
        stored = await self._sets.get(owner_of(rpc.caller, request.tenant), revision)
        return pb.GetPolicySetResponse(
            policy_set=policy_set_message(stored.document), revision=revision_message(stored)
        )

    async def list_policy_sets(self, rpc: Rpc[pb.ListPolicySetsRequest]) -> pb.ListPolicySetsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        owner = owner_of(rpc.caller, request.tenant)
        size = request.page_size or PAGE_SIZE_DEFAULT
        before = int(page_position(request, tenant) or REVISION_MAX)
        rows = await self._sets.list_revisions(owner, page_size=size, before=before)
        position = str(rows[-1].revision) if len(rows) == size else ""
        return pb.ListPolicySetsResponse(
            revisions=[revision_message(row) for row in rows],
            next_page_token=page_token(request, tenant, position),
        )

    async def dry_run_policy_set(self, rpc: Rpc[pb.DryRunPolicySetRequest]) -> pb.DryRunPolicySetResponse:
        request, caller = rpc.request, rpc.caller
        # A policy could be written to ask what an input holds.
        permit(caller, "actions.read")
        query = ActionQuery(
            capabilities=tuple(request.capabilities),
            create_time_min_us=microseconds(request.create_time_min)
            if request.HasField("create_time_min")
            else None,
            create_time_max_us=microseconds(request.create_time_max)
            if request.HasField("create_time_max")
            else None,
            page_size=request.page_size or DRY_RUN_PAGE_SIZE_DEFAULT,
            after_action_id=page_position(request, caller.tenant),
        )
        found = await dry_run(self._kernel, caller, policy_set_of(request.policy_set), query)
        return pb.DryRunPolicySetResponse(
            changes=map(change_message, found.changes),
            examined=found.examined,
            skipped=found.skipped,
            next_page_token=page_token(request, caller.tenant, found.next_after_action_id),
        )

    async def explain_decision(self, rpc: Rpc[pb.ExplainDecisionRequest]) -> pb.ExplainDecisionResponse:
        found = await explain(
            self._kernel.journal.pool,
            self._kernel.policies,
            rpc.caller,
            rpc.request.id,
            with_texts=may(rpc.caller, "policy.read"),
        )
        return explanation_message(found)
