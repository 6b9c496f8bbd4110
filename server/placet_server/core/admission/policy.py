"""The policy gate: whether the policies in force let this call happen. A refusal leaves a row that explains it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from placet_server.core.decision.policy import Policies
from placet_server.core.decision.policy_slice import Question
from placet_server.core.decision.refusal import refusal_of
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_action_id
from placet_server.model.json_text import CanonicalJson
from placet_server.model.policy import PolicyVerdict
from placet_server.model.policy_errors import PolicyRefused
from placet_server.store import policy as rows

# After so many refusals of a tenant here, what is more than is kept of them goes.
_REFUSALS_BETWEEN_DROPS = 64
_TENANTS_MAX = 4096


class PolicyGate:
    """One per process; belongs to its event loop."""

    def __init__(self, policies: Policies, journal: Journal) -> None:
        self._policies = policies
        self._journal = journal
        self._refused: Counter[str] = Counter()

    async def check(self, question: Question, canonical: CanonicalJson) -> PolicyVerdict:
        """The verdict, which allows. Raises PolicyRefused, and StoreUnavailable if it is not known what is in force."""
        verdict = await self._policies.decide(question)
        if verdict.allowed:
            return verdict
        raise await self._refusal(question, canonical, verdict)

    async def unanswerable(
        self, question: Question, canonical: CanonicalJson, verdict: PolicyVerdict
    ) -> PolicyRefused:
        """The refusal of a question that nobody can answer, as this verdict asks for more than one person."""
        return await self._refusal(
            question, canonical, replace(verdict, allowed=False, problem="not_answerable")
        )

    async def _refusal(
        self, question: Question, canonical: CanonicalJson, verdict: PolicyVerdict
    ) -> PolicyRefused:
        capability, tenant = question.offered.capability, question.caller.tenant
        refusal = refusal_of(new_action_id(), question, canonical.digest.hex(), verdict)
        async with self._journal.pool.connection() as connection:
            await rows.put_refusal(connection, tenant, refusal, self._journal.clock.now())
            if self._is_drop_due(tenant):
                await rows.drop_refusals(connection, tenant)
        return PolicyRefused(
            capability=capability.name,
            policies=verdict.names,
            problem=verdict.problem,
            refusal_id=refusal.refusal_id,
        )

    def _is_drop_due(self, tenant: str) -> bool:
        if len(self._refused) >= _TENANTS_MAX:
            self._refused.clear()
        self._refused[tenant] += 1
        return self._refused[tenant] % _REFUSALS_BETWEEN_DROPS == 0
