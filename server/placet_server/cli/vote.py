"""From what somebody types to votes: what each is about, what goes with it, and a name that says so."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placet_server.cli.complaint import Complaint

if TYPE_CHECKING:
    from placet import Decision
    from placet.approval_requests import VoteWord

IDS_MAX = 50
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What goes with each of the votes."""

    verdict: VoteWord
    reason: str
    ticket: str
    attachments: tuple[str, ...]
    suggested: bytes | None = None


def decision_of(approval_id: str, digest: str, said: Said, voter: str) -> Decision:
    from placet import Decision

    content = [
        approval_id,
        digest,
        voter,
        said.verdict,
        said.reason,
        said.ticket,
        said.attachments,
        (said.suggested or b"").decode(),
    ]
    return Decision(
        approval_id,
        said.verdict,
        digest=digest,
        reason=said.reason,
        ticket=said.ticket,
        attachments=said.attachments,
        suggested_input=said.suggested,
        decision_id=name_of_decision(content),
    )


def is_person() -> bool:
    """Somebody who sees what is shown, and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def checked_digest(text: str) -> str:
    """Raises Complaint for what is none: a part of one would not bind anything."""
    said = text.strip().lower()
    if not _DIGEST.fullmatch(said):
        raise Complaint(f"the digest is {said!r}; say all 64 hexadecimal digits of it")
    return said


def name_of_decision(content: Sequence[object]) -> str:
    """Made of all that it says, so that saying it again is no second decision."""
    text = json.dumps(content, ensure_ascii=True)
    return f"cli-{hashlib.sha256(text.encode()).hexdigest()}"


def pairs_of(ids: list[str], digest: str) -> list[tuple[str, str]]:
    """Ids with their digests, "" where none is said. Raises Complaint."""
    if len(ids) > IDS_MAX:
        raise Complaint(f"{len(ids)} ids are too many at once; say at most {IDS_MAX}")
    if digest and len(ids) > 1:
        raise Complaint("--digest goes with one ID; say ID@DIGEST for each")
    pairs = []
    for text in ids:
        id_, _, said = text.partition("@")
        if said and digest and said != digest:
            raise Complaint("two digests are said for one ID")
        said = said or digest
        pairs.append((id_, checked_digest(said) if said else ""))
    return pairs


def evidence_of(texts: list[str] | None) -> tuple[str, tuple[str, ...]]:
    """Ticket and attachments. Raises Complaint."""
    tickets: list[str] = []
    attachments: list[str] = []
    for text in texts or ():
        kind, _, value = text.partition("=")
        if kind not in ("ticket", "attachment") or not value.strip():
            raise Complaint(f"--evidence is {text!r}; say ticket=… or attachment=…")
        (tickets if kind == "ticket" else attachments).append(value)
    if len(tickets) > 1:
        raise Complaint("--evidence names two tickets; say one, and the other as an attachment")
    return "".join(tickets), tuple(attachments)
