"""What would have become of recorded actions under another policy set: each is asked about again as it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from placet_server.core.admission.catalog import CatalogEntry
from placet_server.core.decision.policy_rules import NotCompiled, Rulebook
from placet_server.core.decision.policy_slice import Question
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import list_actions
from placet_server.model.action import Action
from placet_server.model.caller import Caller, caller_of
from placet_server.model.errors import FieldViolation
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.policy import PolicySet, PolicyVerdict
from placet_server.model.policy_errors import PolicySetRefused
from placet_server.model.policy_schema import Offered
from placet_server.model.query import ActionQuery
from placet_server.store import policy as rows
from placet_server.store.policy import ActionInput

# Whose inputs are in memory at a time.
_INPUTS_AT_A_TIME = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`before` None: admitted before there were policies."""

    action: Action
    before: PolicyVerdict | None
    after: PolicyVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A page. `skipped` of the examined ones: their capability's version is gone."""

    changes: tuple[Change, ...]
    examined: int
    skipped: int
    next_after_action_id: str


async def dry_run(kernel: Kernel, caller: Caller, document: PolicySet, query: ActionQuery) -> DryRun:
    """Of the caller's tenant, newest first. Raises PolicySetRefused for what is no Cedar, StoreUnavailable."""
    tenant = caller.tenant
    try:
        book = await kernel.policies.book_with(tenant, document)
    except NotCompiled as error:
        violation = FieldViolation(
            field="policy_set.cedar", rule="cedar_malformed", description=str(error)[:512]
        )
        raise PolicySetRefused(name=document.name, violations=(violation,)) from error
    page = await list_actions(kernel.journal, caller, query)
    offers = _Offers(kernel, tenant)
    changes: list[Change] = []
    skipped = 0
    for begin in range(0, len(page.actions), _INPUTS_AT_A_TIME):
        some = page.actions[begin : begin + _INPUTS_AT_A_TIME]
        asked, verdicts = await _recorded(kernel, tenant, some)
        for action in some:
            offered = await offers.of(action)
            if offered is None or action.action_id not in asked:
                skipped += 1
                continue
            before = verdicts.get(action.verdict_digest or "")
            after = await _decided(book, action, offered, asked[action.action_id])
            if _differ(before, after):
                changes.append(Change(action=action, before=before, after=after))
            # Calls of others come in between.
            await asyncio.sleep(0)
    return DryRun(
        changes=tuple(changes),
        examined=len(page.actions),
        skipped=skipped,
        next_after_action_id=page.next_after_action_id,
    )


class _Offers:
    """Capabilities of actions, each looked up once."""

    def __init__(self, kernel: Kernel, tenant: str) -> None:
        self._catalog = kernel.catalog
        self._tenant = tenant
        self._known: dict[tuple[str, str], CatalogEntry | None] = {}

    async def of(self, action: Action) -> Offered | None:
        key = action.capability, action.version
        if key not in self._known:
            try:
                self._known[key] = await self._catalog.get_capability(self._tenant, *key)
            except CapabilityNotFound:
                self._known[key] = None
        found = self._known[key]
        if found is None:
            return None
        return Offered(capability=found.stored.capability, manifest=found.stored.manifest)


async def _recorded(
    kernel: Kernel, tenant: str, some: Sequence[Action]
) -> tuple[dict[str, ActionInput], dict[str, PolicyVerdict]]:
    digests = {action.verdict_digest for action in some if action.verdict_digest is not None}
    async with kernel.journal.pool.connection() as connection:
        asked = await rows.list_inputs(connection, tenant, [action.action_id for action in some])
        return asked, await rows.get_verdicts(connection, tenant, sorted(digests))


async def _decided(book: Rulebook, action: Action, offered: Offered, given: ActionInput) -> PolicyVerdict:
    question = Question(
        caller_of(action.requester), offered, orjson.loads(given.input_json), action.labels, given.parent
    )
    decided = await book.decide(question)
    book.remember(question, decided)
    return decided.verdict


def _differ(before: PolicyVerdict | None, after: PolicyVerdict) -> bool:
    """In what becomes of the action; other policies that come to the same change nothing."""
    if before is None:
        return not after.allowed or bool(after.approval)
    return (before.allowed, before.approval) != (after.allowed, after.approval)
