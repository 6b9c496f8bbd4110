"""`placet approve` and `placet deny`: one person's yes or no, to exactly what was looked at.

At a terminal what would run is shown, and asked about; anywhere else the digest of what was looked at is part of the
command. Nothing is decided by an id alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, Target, payload_of
from placet_server.cli.output import counted, print_document, say, warn
from placet_server.cli.vote import Said, decision_of, evidence_of, is_person, pairs_of

if TYPE_CHECKING:
    from placet import Client, Decision
    from placet.errors import PlacetError
    from placet.v1.decision_pb2 import Approval

_KINDS = {"REASON": "--reason", "TICKET": "--evidence ticket=…", "ATTACHMENT": "--evidence attachment=…"}

Ids = Annotated[
    list[str],
    typer.Argument(
        metavar="ID[@DIGEST]", help="Of approvals, or of actions that wait; with the digest shown."
    ),
]
Digest = Annotated[
    str, typer.Option(metavar="HEX", help="With one ID: what was looked at, as `placet show` tells it.")
]
Reason = Annotated[str, typer.Option(help="Why, in words; kept with the vote.")]
EvidenceTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--evidence", metavar="KIND=VALUE", help="ticket=OPS-42, attachment=https://…; may be given again."
    ),
]


def approve(
    ids: Ids,
    digest: Digest = "",
    reason: Reason = "",
    evidence: EvidenceTexts = None,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Say yes to exactly what is shown. It runs nothing; once enough people have, a server does.

    At a terminal all of them are shown, and asked about once. Without one each ID needs the digest of what you have
    looked at: ID@DIGEST; if all have one nothing is asked. The same command again is the same vote. Exit code 0 if all
    count, 12 if some do, else why none does.

    \b
    Examples:
      placet approve 01996f0a-3c4d-7aaa
      placet approve 01996f0a-3c4d-7aaa 01996f0b-11aa-7bbb --reason "both checked" --evidence ticket=OPS-42
      placet approve 01996f0a-3c4d-7aaa --digest "$DIGEST" --json
    """
    ticket, attachments = evidence_of(evidence)
    said = Said(verdict="approve", reason=reason, ticket=ticket, attachments=attachments)
    return _decide(pairs_of(ids, digest), said, target, is_json=is_json)


def deny(
    ids: Ids,
    digest: Digest = "",
    reason: Reason = "",
    evidence: EvidenceTexts = None,
    suggest: Annotated[
        str, typer.Option(metavar="JSON|@FILE|-", help="An input that you would rather see; with one ID.")
    ] = "",
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Say no: one is enough, the action is DENIED and nothing of it runs.

    As `placet approve` in all else.

    \b
    Examples:
      placet deny 01996f0a-3c4d-7aaa --reason "not this customer"
      placet deny 01996f0a-3c4d-7aaa --suggest '{"order": "A-1001", "amount": "19.90"}'
      placet deny "01996f0a-3c4d-7aaa-8bbb-123456789abc@$DIGEST" --reason "not today" --json
    """
    if suggest and len(ids) > 1:
        raise Complaint("--suggest goes with one ID")
    ticket, attachments = evidence_of(evidence)
    suggested = payload_of(suggest) if suggest else None
    said = Said(verdict="deny", reason=reason, ticket=ticket, attachments=attachments, suggested=suggested)
    return _decide(pairs_of(ids, digest), said, target, is_json=is_json)


def _decide(pairs: list[tuple[str, str]], said: Said, target: str | None, *, is_json: bool) -> int:
    from placet_server.cli.approval_id import find_approval
    from placet_server.cli.session import connect

    is_asked = not all(digest for _, digest in pairs)
    if is_asked and (is_json or not is_person()):
        raise Complaint(
            "without a terminal each id needs the digest of what you have looked at: ID@DIGEST, as `placet show ID` "
            "tells it"
        )
    with connect(target) as client:
        wanted = [(find_approval(client, text), digest) for text, digest in pairs]
        if len({approval_id for approval_id, _ in wanted}) < len(wanted):
            raise Complaint("two of these ids are the same approval")
        if is_asked:
            wanted = _asked(client, wanted, said)
        voter = client.whoami().caller.subject
        answers = _sent(
            client, [decision_of(approval_id, digest, said, voter) for approval_id, digest in wanted]
        )
    return _told([approval_id for approval_id, _ in wanted], answers, said, is_json=is_json)


def _asked(client: Client, wanted: list[tuple[str, str]], said: Said) -> list[tuple[str, str]]:
    """Ids and the digests that were shown, once the person at the terminal has said yes. Raises Complaint for a no."""
    from placet_server.cli.answer import print_question
    from placet_server.cli.approval import look_at, print_approval

    seen = []
    for number, (approval_id, digest) in enumerate(wanted, start=1):
        found = look_at(client, approval_id)
        if number > 1:
            say()
        if len(wanted) > 1:
            say(f"{number} of {len(wanted)}")
        print_question(found) if found["kind"] == "INPUT" else print_approval(found)
        _check(found, digest, said)
        seen.append((approval_id, found["digest"]))
    say()
    these = "this" if len(seen) == 1 else f"these {len(seen)}, each as it is shown"
    what = (
        f"Say yes to {these}?" if said.verdict == "approve" else f"Say no to {these}? Nothing of it will run."
    )
    if not typer.confirm(what, err=True):
        raise Complaint("nothing was decided", ExitCode.INTERRUPTED)
    return seen


def _check(found: dict[str, Any], digest: str, said: Said) -> None:
    """What need not be asked. Raises Complaint."""
    from placet_server.cli.approval import check_eligible

    if digest and digest != found["digest"]:
        raise Complaint(
            f"the digest that you say is not that of {found['approval_id']}, shown above: nothing was decided",
            ExitCode.CONFLICT,
            "STALE_DIGEST",
        )
    if found["kind"] != "APPROVAL" and said.verdict == "approve":
        raise Complaint(f"it wants an answer: placet answer {found['approval_id']}")
    check_eligible(found, "nothing was decided")
    if said.verdict == "approve":
        given = {"REASON": said.reason.strip(), "TICKET": said.ticket, "ATTACHMENT": said.attachments}
        lacking = [_KINDS[kind] for kind in (found["terms"] or {})["evidence"] if not given.get(kind, True)]
        if lacking:
            raise Complaint(f"its terms ask for more with each yes: {' '.join(lacking)}")


def _sent(client: Client, decisions: list[Decision]) -> list[Approval | PlacetError]:
    """Raises what one alone ends with."""
    if len(decisions) > 1:
        return client.decide_many(decisions)
    (one,) = decisions
    return [
        client.decide(
            one.approval_id,
            one.verdict,
            digest=one.digest,
            reason=one.reason,
            ticket=one.ticket,
            attachments=one.attachments,
            suggested_input=one.suggested_input,
            decision_id=one.decision_id,
        )
    ]


def _told(ids: list[str], answers: list[Approval | PlacetError], said: Said, *, is_json: bool) -> int:
    from placet.errors import PlacetError
    from placet_server.cli.document import document_of
    from placet_server.cli.exit_code import code_of_error
    from placet_server.cli.failure import document_of_error

    results: list[dict[str, Any]] = []
    codes = []
    for approval_id, answer in zip(ids, answers, strict=True):
        if isinstance(answer, PlacetError):
            codes.append(code_of_error(answer))
            refused = {**document_of_error(answer), "exit_code": int(codes[-1])}
            results.append({"approval_id": approval_id, "approval": None, "error": refused})
        else:
            codes.append(ExitCode.SUCCEEDED)
            results.append({"approval_id": approval_id, "approval": document_of(answer), "error": None})
    if is_json:
        print_document({"results": results})
    else:
        _tell(results, said)
    if ExitCode.SUCCEEDED in codes:
        return ExitCode.SUCCEEDED if set(codes) == {ExitCode.SUCCEEDED} else ExitCode.CONFLICT
    return codes[0]


def _tell(results: list[dict[str, Any]], said: Said) -> None:
    from placet_server.cli.escape import escape

    for result in results:
        text = escape(result["error"]["message"]) if result["error"] else escape(_became(result["approval"]))
        say(f"{result['approval_id']}  {text}")
    refused = sum(result["error"] is not None for result in results)
    if refused:
        warn(f"{counted(refused, 'vote')} of {len(results)} not counted")
    elif len(results) > 1:
        warn(f"{'yes' if said.verdict == 'approve' else 'no'} to {len(results)}")


def _became(approval: dict[str, Any]) -> str:
    """Where it stands now, and what follows."""
    match approval["state"]:
        case "PENDING":
            return f"PENDING: still needed is {approval['missing']}"
        case "GRANTED" if approval["consume_time"]:
            return f"GRANTED, and begun: placet watch {approval['action_id']}"
        case "GRANTED":
            return f"GRANTED: a server runs it now: placet watch {approval['action_id']}"
        case "DENIED":
            return "DENIED: nothing of it runs"
        case state:
            return str(state)
