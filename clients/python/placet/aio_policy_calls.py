"""What a client asks for about policies. `AsyncClient` has all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from placet.aio_sender import AsyncSender
from placet.policy import PolicySet, dry_run_request
from placet.stream import CALL_SECONDS, READ_SECONDS
from placet.v1 import policy_service_pb2 as pb


class AsyncPolicyCalls(AsyncSender):
    """What it sends, beside all that the client does. `tenant` "-": the operator's set, for operators."""

    async def validate_policy_set(
        self, policy_set: PolicySet, *, tenant: str = "", timeout: float = CALL_SECONDS
    ) -> pb.ValidatePolicySetResponse:
        """Everything that is wrong with a set; without problems it may be admitted. Changes nothing."""
        request = pb.ValidatePolicySetRequest(policy_set=policy_set.message(), tenant=tenant)
        response: pb.ValidatePolicySetResponse = await self._ask("ValidatePolicySet", request, timeout)
        return response

    async def admit_policy_set(
        self,
        policy_set: PolicySet,
        *,
        validate_only: bool = False,
        expected_digest: str = "",
        tenant: str = "",
        idempotency_key: str = "",
        timeout: float = CALL_SECONDS,
    ) -> pb.AdmitPolicySetResponse:
        """Put a set in force, whole or not at all.

        `expected_digest`: only if it is that of the set which this replaces. Raises InvalidRequestError with its
        problems, ConflictError.
        """
        request = pb.AdmitPolicySetRequest(
            policy_set=policy_set.message(),
            validate_only=validate_only,
            expected_digest=expected_digest,
            tenant=tenant,
            idempotency_key=idempotency_key,
        )
        response: pb.AdmitPolicySetResponse = await self._ask("AdmitPolicySet", request, timeout)
        return response

    async def roll_back_policy_set(
        self,
        revision: int,
        *,
        expected_digest: str = "",
        tenant: str = "",
        idempotency_key: str = "",
        timeout: float = READ_SECONDS,
    ) -> pb.RollBackPolicySetResponse:
        """Put an older revision in force again, as a new one; 0: the built-in one."""
        request = pb.RollBackPolicySetRequest(
            revision=revision,
            expected_digest=expected_digest,
            tenant=tenant,
            idempotency_key=idempotency_key,
        )
        response: pb.RollBackPolicySetResponse = await self._ask("RollBackPolicySet", request, timeout)
        return response

    async def policy_set(
        self, revision: int | None = None, *, tenant: str = "", timeout: float = READ_SECONDS
    ) -> pb.GetPolicySetResponse:
        """One revision with its policies; None: the one in force."""
        request = pb.GetPolicySetRequest(revision=revision, tenant=tenant)
        response: pb.GetPolicySetResponse = await self._ask("GetPolicySet", request, timeout)
        return response

    def policy_sets(
        self, *, tenant: str = "", page_size: int = 0, timeout: float = READ_SECONDS
    ) -> AsyncIterator[pb.PolicySetRevision]:
        """Revisions without their policies, newest first; pages are fetched as needed."""
        request = pb.ListPolicySetsRequest(tenant=tenant, page_size=page_size)
        return self._pages("ListPolicySets", request, "revisions", timeout)

    def dry_run_policy_set(
        self,
        policy_set: PolicySet,
        *,
        capabilities: Iterable[str] = (),
        create_time_min: datetime | None = None,
        create_time_max: datetime | None = None,
        page_size: int = 0,
        timeout: float = CALL_SECONDS,
    ) -> AsyncIterator[pb.PolicyChange]:
        """Recorded actions that a set would decide otherwise than they were, newest first. Changes nothing; pages are
        fetched as needed, to the oldest action unless you say how far.
        """
        request = dry_run_request(
            policy_set,
            capabilities=capabilities,
            create_time_min=create_time_min,
            create_time_max=create_time_max,
            page_size=page_size,
        )
        return self._pages("DryRunPolicySet", request, "changes", timeout)

    async def explain(self, decision_id: str, *, timeout: float = READ_SECONDS) -> pb.ExplainDecisionResponse:
        """What the policies said of an action when it was admitted; or, by `refusal_id`, of a call that they
        refused.
        """
        request = pb.ExplainDecisionRequest(id=decision_id)
        response: pb.ExplainDecisionResponse = await self._ask("ExplainDecision", request, timeout)
        return response
