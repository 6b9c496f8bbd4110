"""What policies said of an action when it was admitted, or of a call when they refused it, also before its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placet_server.core.decision.policy import Policies
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound
from placet_server.model.policy import PolicyVerdict
from placet_server.store import action as actions
from placet_server.store import policy as rows
from placet_server.store.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`verdict` None: admitted before there were policies. `texts`: by digest, of policies that are in force now."""

    id: str
    is_action: bool
    capability: str
    version: str
    requester: str
    create_time_us: int
    verdict: PolicyVerdict | None
    texts: Mapping[str, str]


async def explain(
    pool: Pool, policies: Policies, caller: Caller, decision_id: str, *, with_texts: bool
) -> Explanation:
    """Within the caller's tenant. Raises NotFound, StoreUnavailable."""
    tenant = caller.tenant
    async with pool.connection() as connection:
        action = await actions.get(connection, tenant, decision_id, full=False)
        if action is not None and action.verdict_digest is not None:
            verdict = (await rows.get_verdicts(connection, tenant, [action.verdict_digest])).get(
                action.verdict_digest
            )
        else:
            verdict = None
        refusal = await rows.get_refusal(connection, tenant, decision_id)
    texts = await _texts(policies, tenant) if with_texts else {}
    if action is not None:
        return Explanation(
            id=action.action_id,
            is_action=True,
            capability=action.capability,
            version=action.version,
            requester=action.requester.subject,
            create_time_us=action.create_time_us,
            # Later than what it was admitted by.
            verdict=verdict if refusal is None else refusal.verdict,
            texts=texts,
        )
    if refusal is None:
        raise NotFound(kind="decision", name=decision_id)
    return Explanation(
        id=refusal.refusal_id,
        is_action=False,
        capability=refusal.capability,
        version=refusal.version,
        requester=refusal.subject,
        create_time_us=refusal.create_time_us,
        verdict=refusal.verdict,
        texts=texts,
    )


async def _texts(policies: Policies, tenant: str) -> dict[str, str]:
    """Of the tenant's own alone: what the operator's say is the operator's."""
    book = await policies.book(tenant)
    return {policy.digest: policy.text for policy in book.own.policies}
