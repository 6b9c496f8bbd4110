"""What people are shown of an action that they have to say yes to, and what their decision is bound to.

Made from the contract and the input alone: the requester's words are never part of it. It goes into the store with the
action, in one statement.
"""

from __future__ import annotations

from typing import Any

import orjson

from placet_server.core.publication.lease import new_action_id
from placet_server.model.approval import Terms, binding_digest, selected
from placet_server.model.approval_text import format_terms
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.json_text import CanonicalJson
from placet_server.model.question import question_of
from placet_server.model.redaction import is_hidden, pointer_to
from placet_server.model.wait import WaitKind
from placet_server.store.batch_item import ApprovalPart

TITLE_LENGTH_MAX = 256
SUMMARY_LENGTH_MAX = 4096
VALUE_LENGTH_MAX = 256
HIDDEN = "(hidden)"


def request_of(
    row: dict[str, Any], capability: Capability, input_: CanonicalJson, terms: Terms, verdict_digest: str
) -> ApprovalPart:
    """Of the action that `row` is about to be. `verdict_digest`: over what the policies made of it."""
    kind, title, summary = _told(capability, input_.value)
    who = selected(terms)
    part = ApprovalPart(
        approval_id=new_action_id(),
        kind=kind.value,
        digest=binding_digest(
            tenant=row["tenant"],
            capability=row["capability"],
            version=row["version"],
            contract_digest=row["contract_digest"],
            input_digest=row["input_digest"],
            requester={"subject": row["subject"], "caller": orjson.loads(row["caller"])},
            verdict_digest=verdict_digest,
        ),
        terms=format_terms(terms),
        title=title,
        summary=summary,
        subjects=sorted(who.subjects),
        roles=sorted(who.roles),
        groups=sorted(who.groups),
        ttl_seconds=terms.ttl_seconds,
        escalate_seconds=None if terms.escalation is None else terms.escalation.after_seconds,
        waiting_body="",
    )
    part["waiting_body"] = _body(part)
    return part


def _told(capability: Capability, value: Any) -> tuple[WaitKind, str, str]:
    """Title and summary. Of a question they are its own: it is all that is asked."""
    if capability.kind is CapabilityKind.HUMAN:
        question = question_of(value)
        return WaitKind.INPUT, question.title, question.prompt
    shown = _fields(capability, value)
    summary = "\n".join(f"{name}: {value}" for name, value in shown)
    return WaitKind.APPROVAL, _title(capability, shown), _cut(summary, SUMMARY_LENGTH_MAX)


def _body(part: ApprovalPart) -> str:
    """Of the event."""
    body = {
        "approval_id": part["approval_id"],
        "kind": part["kind"],
        "title": part["title"],
        "ttl_seconds": part["ttl_seconds"],
    }
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()


def _fields(capability: Capability, value: Any) -> list[tuple[str, str]]:
    """The members that the contract names first, with their values, but for what is sensitive."""
    members = value if isinstance(value, dict) else {}
    sensitive = capability.contract.data.sensitive_paths
    return [
        (name, HIDDEN if is_hidden(pointer_to(name), sensitive) else _text(members[name]))
        for name in capability.presentation.key_fields
        if name in members
    ]


def _title(capability: Capability, shown: list[tuple[str, str]]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in shown)
    name = capability.presentation.title or capability.name
    return _cut(f"{name}: {told}" if told else name, TITLE_LENGTH_MAX)


def _text(value: Any) -> str:
    """On one line."""
    if isinstance(value, str) and value.isprintable():
        return _cut(value, VALUE_LENGTH_MAX)
    return _cut(orjson.dumps(value).decode(), VALUE_LENGTH_MAX)


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
