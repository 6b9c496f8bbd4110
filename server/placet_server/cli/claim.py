"""`placet claim` and `placet release`: who is looking at an approval, so that others look at other ones."""

from __future__ import annotations

from typing import Annotated

import typer

from placet_server.cli.option import Json, Target, seconds_of
from placet_server.cli.output import print_document, say

ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="Of an approval, or of the action that waits for it.")
]


def claim(
    approval_id: ApprovalId,
    span: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long, at most 1h.")] = "10m",
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Say that you are looking at it. It keeps nobody from deciding, and ends by itself.

    \b
    Examples:
      placet claim 01996f0a-3c4d-7aaa
      placet claim 01996f0a-3c4d-7aaa --for 30m --json
    """
    from placet_server.cli.approval import time_left
    from placet_server.cli.approval_id import find_approval
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    seconds = seconds_of(span, "--for")
    with connect(target) as client:
        found = document_of(client.claim_approval(find_approval(client, approval_id), ttl=seconds))
    if is_json:
        print_document({"approval": found})
    else:
        say(f"{found['approval_id']} is yours to look at; that ends {time_left(found['claim_expire_time'])}")


def release(approval_id: ApprovalId, target: Target = None, is_json: Json = False) -> None:
    """Take your claim back.

    \b
    Examples:
      placet release 01996f0a-3c4d-7aaa
      placet release 01996f0a-3c4d-7aaa --json
    """
    from placet_server.cli.approval_id import find_approval
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = document_of(client.release_approval(find_approval(client, approval_id)))
    if is_json:
        print_document({"approval": found})
    else:
        say(f"{found['approval_id']} is claimed by nobody")
