"""`placet withdraw`."""

from __future__ import annotations

from typing import Annotated

import typer

from placet_server.cli.option import Json, Target
from placet_server.cli.output import counted, print_document, say


def withdraw(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of a capability that this tenant has admitted.")
    ],
    version: Annotated[
        str, typer.Option(help="Only this version. Default: every one.", show_default=False)
    ] = "",
    reason: Annotated[str, typer.Option(help="Why; kept with it.", show_default=False)] = "",
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Tell what it would mean and change nothing.")
    ] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Take a capability out of service.

    New calls do not find it. What stands in line for it ends REFUSED, what waits for people once they have said yes,
    and what runs goes on. Its manifest, admitted again, brings it back.

    \b
    Examples:
      placet withdraw payments.refund --validate-only
      placet withdraw payments.refund --version 2 --reason "pays twice"
      placet withdraw payments.refund --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = document_of(client.withdraw(name, version, reason=reason, validate_only=validate_only))
    if is_json:
        print_document(found)
        return
    if not found["versions"]:
        say(f"{name} was out of service already")
        return
    word = "would be" if validate_only else "is"
    say(f"{name} {word} out of service: {counted(len(found['versions']), 'version')}")
    say(f"{_actions(found['waiting'])} for people and {found['queued']} in line end REFUSED")
    say(f"{found['running']} running go on")


def _actions(waiting: int | str) -> str:
    count = int(waiting)
    return f"{counted(count, 'action')} that {'waits' if count == 1 else 'wait'}"
