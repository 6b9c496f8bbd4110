"""`placet revoke`: taking one's own vote back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.claim import ApprovalId
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, Target
from placet_server.cli.output import print_document, say

if TYPE_CHECKING:
    from placet import Client


def revoke(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Option(help="Why, in words; kept with the vote.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at the terminal.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Take your vote back, which is possible until the action begins.

    What was granted by it is over then: DENIED, and nothing of it runs. You cannot vote on it again.

    \b
    Examples:
      placet revoke 01996f0a-3c4d-7aaa
      placet revoke 01996f0a-3c4d-7aaa --reason "the wrong customer" --yes --json
    """
    from placet_server.cli.approval_id import find_approval
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = document_of(client.approval(find_approval(client, approval_id)))
        mine = _own_vote(client, found)
        if not (yes or is_json) and sys.stdin.isatty():
            _ask(found)
        ended = document_of(client.revoke(found["approval_id"], mine["decision_id"], reason=reason))
    if is_json:
        print_document({"approval": ended})
    else:
        follows = {"PENDING": "what it waits for goes on", "REVOKED": "nothing of it runs"}
        say(
            f"{ended['approval_id']}  taken back; {ended['state']}: {follows.get(ended['state'], '')}".rstrip(
                ": "
            )
        )


def _own_vote(client: Client, found: dict[str, Any]) -> dict[str, Any]:
    """Raises Complaint."""
    voter = client.whoami().caller.subject
    mine = [decision for decision in found["decisions"] if decision["voter"] == voter]
    if not mine:
        raise Complaint(f"you have not voted on {found['approval_id']}", ExitCode.NOT_FOUND)
    own: dict[str, Any] = mine[-1]
    return own


def _ask(found: dict[str, Any]) -> None:
    """Raises Complaint for a no."""
    from placet_server.cli.approval import print_approval

    print_approval(found)
    if not typer.confirm("Take your vote back? You cannot cast it again.", err=True):
        raise Complaint("nothing was changed", ExitCode.INTERRUPTED)
