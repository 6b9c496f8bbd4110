"""A call that policies refused, as it is kept for whoever asks why: before anything was stored under an id of its own,
before its start under that of its action, with which it goes.
"""

from __future__ import annotations

import orjson

from placet_server.core.decision.policy_slice import Question
from placet_server.model.caller import Caller
from placet_server.model.document import written
from placet_server.model.policy import PolicyVerdict
from placet_server.store.policy import Refusal


def refusal_of(refusal_id: str, question: Question, input_digest: str, verdict: PolicyVerdict) -> Refusal:
    capability = question.offered.capability
    return Refusal(
        refusal_id=refusal_id,
        capability=capability.name,
        version=capability.version,
        subject=question.caller.subject,
        caller=_document(question.caller),
        input_digest=input_digest,
        parent=question.parent,
        verdict=verdict,
    )


def _document(caller: Caller) -> str:
    """As in the rows of actions, without login and credential."""
    told = {
        "kind": caller.kind.value,
        "roles": caller.roles,
        "groups": caller.groups,
        "scopes": sorted(caller.scopes),
        "delegation": [written(each) for each in caller.delegation],
    }
    return orjson.dumps(told).decode()
