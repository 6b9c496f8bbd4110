"""Lookups that are asked now, because somebody wants to know; also about what was given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placet_server.core.publication.journal import Journal
from placet_server.core.recovery.redrive import Selected
from placet_server.core.recovery.resolve import list_ambiguous
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import reconcile

CanBeAsked = Callable[[Action], bool]
"""False: its tool is here and has no lookup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileCommand:
    """`action_ids`, or else the oldest `count_max` that are ambiguous and of these capabilities; none: of any."""

    action_ids: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    count_max: int = 100
    validate_only: bool = False


async def reconcile_now(
    journal: Journal, caller: Caller, command: ReconcileCommand, can_be_asked: CanBeAsked
) -> list[Selected]:
    """In the order of the ids. `changed`: somebody will be asked; refused are not_found, not_ambiguous and no_lookup.

    Within the caller's tenant. Raises MalformedRequest for a capability that no row can have.
    """
    ids = command.action_ids
    if not ids:
        found = await list_ambiguous(
            journal,
            tenant=caller.tenant,
            capabilities=command.capabilities,
            page_size=command.count_max,
        )
        ids = tuple(each.action.action_id for each in found)
    return [await _want(journal, caller.tenant, each, command.validate_only, can_be_asked) for each in ids]


async def _want(
    journal: Journal, tenant: str, action_id: str, validate_only: bool, can_be_asked: CanBeAsked
) -> Selected:
    async with journal.pool.connection() as connection:
        action = await actions.get(connection, tenant, action_id, full=False)
        rule = _rule_against(action, can_be_asked)
        if not rule and not validate_only:
            wanted = await reconcile.want(connection, tenant, action_id, now=journal.clock.now())
            rule = "" if wanted else "not_ambiguous"
    state = None if action is None else action.state
    return Selected(action_id=action_id, state=state, changed=not rule, refused_rule=rule)


def _rule_against(action: Action | None, can_be_asked: CanBeAsked) -> str:
    if action is None:
        return "not_found"
    if action.state is not ActionState.AMBIGUOUS:
        return "not_ambiguous"
    return "" if can_be_asked(action) else "no_lookup"
