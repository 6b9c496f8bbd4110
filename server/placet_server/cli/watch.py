"""`placet watch`: the events of one action as they come, and its ending as exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.option import ActionId, Json, Target
from placet_server.cli.output import print_line, say, warn

if TYPE_CHECKING:
    from placet.errors import PlacetError
    from placet.v1.event_pb2 import ActionEvent


def watch(
    action_id: ActionId,
    after: Annotated[str, typer.Option(metavar="CURSOR", help="Only what came after this cursor.")] = "",
    target: Target = None,
    is_json: Json = False,
) -> int:
    """The events of an action, to its end.

    First history, then live; the exit code is that of the outcome. Watching cancels nothing.

    An AMBIGUOUS action has not ended: watching goes on until it is known what happened. An ended one that was redriven
    lives on: the newest end counts. With --json one event a line, each with the cursor to go on after.

    \b
    Examples:
      placet watch 01996f0a-3c4d
      placet watch 01996f0a-3c4d --json | jq -r .type
      placet watch 01996f0a-3c4d --after "$CURSOR"
    """
    from placet.status import error_of_action, error_of_outcome
    from placet_server.cli.session import connect, find_action

    ended: ExitCode | None = None
    with connect(target) as client:
        found = find_action(client, action_id)
        with client.watch(found, after=after) as events:
            for event in events:
                print_event(event, is_json=is_json)
                if event.WhichOneof("event") == "ambiguous" and not is_json:
                    warn("it may have happened; waiting until it is known (Ctrl-C leaves, the action stays)")
                if event.WhichOneof("event") == "settled":
                    ended = _code_of(error_of_outcome(event.settled.outcome, event.action_id))
        # Without one the end came before the cursor.
        return _code_of(error_of_action(client.get(found))) if ended is None else ended


def print_event(event: ActionEvent, *, is_json: bool) -> None:
    from placet_server.cli.document import document_of
    from placet_server.cli.event import line_of

    if is_json:
        print_line(document_of(event))
    else:
        say(line_of(event))


def _code_of(error: PlacetError | None) -> ExitCode:
    return ExitCode.SUCCEEDED if error is None else code_of_error(error)
