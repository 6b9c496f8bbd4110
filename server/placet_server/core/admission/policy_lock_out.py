"""A policy set is refused that would not let its own author put another one in force: nobody could be sure to take it
back.

The set is asked, as it would be in force, about its author's putting another in its place. That others have to agree
is no hindrance."""

from __future__ import annotations

from placet_server.core.admission.builtin import BUILT_IN_MANIFEST
from placet_server.core.decision.policy import Policies
from placet_server.core.decision.policy_slice import Question
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.document import written
from placet_server.model.manifest import Problem
from placet_server.model.policy import OPERATOR_TENANT, PolicySet
from placet_server.model.policy_schema import Offered


async def lock_out(
    policies: Policies, owner: str, document: PolicySet, author: Caller, admit: Capability
) -> Problem | None:
    """`admit`: the capability that puts sets in force. Raises StoreUnavailable."""
    if author.tenant == OPERATOR_TENANT:
        # Of a bootstrap token, which never comes again.
        return None
    book = await policies.book_with(author.tenant, document, owner=owner)
    members = {
        "policy_set": written(document),
        "name": document.name,
        "digest": document.digest,
        "replaces": document.digest,
        "first": False,
    }
    if owner == OPERATOR_TENANT:
        members["tenant"] = owner
    offered = Offered(capability=admit, manifest=BUILT_IN_MANIFEST)
    verdict = (await book.decide(Question(author, offered, members, {}))).verdict
    if verdict.allowed:
        return None
    return Problem(
        path="policies",
        code="locks_out",
        message=(
            f"Under this set you could not put another one in force: {admit.name} would be refused to you, by "
            f"{', '.join(verdict.names) or verdict.problem}. Permit it: permit(principal, action == "
            f'Action::"{admit.name}", resource) when {{ … }};'
        ),
    )
