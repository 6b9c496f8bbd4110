"""`placet resume`: going on with an action by its id."""

from __future__ import annotations

from typing import Annotated

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import ActionId, Json, Target, seconds_of
from placet_server.cli.output import pretty_json, print_document, say, warn


def resume(
    action_id: ActionId,
    timeout: Annotated[str, typer.Option(help="For the whole call, retries included: 30, 90s, 5m.")] = "60s",
    stream: Annotated[bool, typer.Option("--stream", help="Show events as they come.")] = False,
    after: Annotated[
        str, typer.Option(metavar="CURSOR", help="With --stream: only what came after this cursor.")
    ] = "",
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Go on with an action to its end. The exit code says how it ended.

    Joins whoever runs it, or has it run if it is ready and nobody does: as the same call with its key would, without
    its input at hand. What has ended is told and never run again.

    \b
    Examples:
      placet resume 01996f0a-3c4d
      placet resume 01996f0a-3c4d --stream --after "$CURSOR"
    """
    from placet_server.cli.call import patience
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action
    from placet_server.cli.watch import print_event

    if after and not stream:
        raise Complaint("--after goes with --stream")
    seconds = seconds_of(timeout, "--timeout")
    with connect(target) as client:
        found = find_action(client, action_id)
        if stream:
            with client.resume_stream(found, after=after, timeout=seconds) as events:
                for event in events:
                    print_event(event, is_json=is_json)
            return ExitCode.SUCCEEDED
        with patience(seconds):
            result = client.resume(found, timeout=seconds)
    if is_json:
        print_document({"action": document_of(result.action)})
        return ExitCode.SUCCEEDED
    say(pretty_json(result.output))
    warn(f"SUCCEEDED  action {result.action_id}, attempt {result.action.attempt}")
    return ExitCode.SUCCEEDED
