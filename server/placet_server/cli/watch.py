"""`placet watch`: the events of one action as they come, and its ending as exit code; or those of all, without end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.option import Json, Labels, Target, labels_of
from placet_server.cli.output import print_line, say, warn

if TYPE_CHECKING:
    from placet import Client
    from placet.errors import PlacetError
    from placet.v1.event_pb2 import ActionEvent


def watch(
    action_id: Annotated[
        str,
        typer.Argument(metavar="[ID]", help="Action id, or a unique beginning of it; none with --follow."),
    ] = "",
    after: Annotated[str, typer.Option(metavar="CURSOR", help="Only what came after this cursor.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="All actions of the tenant, without end.")] = False,
    descendants: Annotated[
        bool, typer.Option("--descendants", help="And of all that it has called; without chunks and outputs.")
    ] = False,
    from_now: Annotated[bool, typer.Option("--from-now", help="With --follow: without the past.")] = False,
    capability: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --follow: of these alone; may be given again."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="With --follow: such as settled; may be given again."),
    ] = None,
    label: Labels = None,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """The events of an action, to its end; with --follow those of all actions, without end.

    First history, then live; the exit code is that of the outcome. Watching cancels nothing.

    An AMBIGUOUS action has not ended: watching goes on until it is known what happened. An ended one that was redriven
    lives on: the newest end counts. With --json one event a line, each with the cursor to go on after. With --follow
    chunks, progress and outputs are left out.

    \b
    Examples:
      placet watch 01996f0a-3c4d
      placet watch 01996f0a-3c4d --json | jq -r .type
      placet watch 01996f0a-3c4d --after "$CURSOR"
      placet watch 01996f0a-3c4d --descendants
      placet watch --follow --from-now --type settled
      placet watch --follow --label shop=berlin --json --after "$CURSOR"
    """
    if follow and descendants:
        raise Complaint("--descendants is of one action, --follow of all")
    if follow:
        _follow(
            target,
            action_id,
            after,
            from_now,
            capability or (),
            type_ or (),
            labels_of(label),
            is_json=is_json,
        )
        return ExitCode.SUCCEEDED
    if not action_id:
        raise Complaint("say which action, or --follow for all of them")
    if from_now or capability or type_ or label:
        raise Complaint("--from-now, --capability, --type and --label go with --follow")
    return _watch_one(target, action_id, after, descendants, is_json=is_json)


def _follow(
    target: str | None,
    action_id: str,
    after: str,
    from_now: bool,
    capabilities: Iterable[str],
    types: Iterable[str],
    labels: Mapping[str, str],
    *,
    is_json: bool,
) -> None:
    from placet_server.cli.session import connect

    if action_id:
        raise Complaint("--follow is for all actions: say no ID, or leave it out")
    if after and from_now:
        raise Complaint("say --after or --from-now")
    with connect(target) as client:
        feed = client.watch_events(
            capabilities=capabilities, types=types, labels=labels, after=after, from_now=from_now
        )
        with feed as events:
            for event in events:
                print_event(event, is_json=is_json, with_id=True)


def _watch_one(target: str | None, action_id: str, after: str, descendants: bool, *, is_json: bool) -> int:
    from placet.status import error_of_action, error_of_outcome
    from placet_server.cli.session import connect, find_action

    ended: ExitCode | None = None
    with connect(target) as client:
        found = find_action(client, action_id)
        watching = client.watch_descendants if descendants else client.watch
        with watching(found, after=after) as events:
            for event in events:
                print_event(event, is_json=is_json, with_id=descendants)
                if event.WhichOneof("event") == "ambiguous" and not is_json:
                    warn("it may have happened; waiting until it is known (Ctrl-C leaves, the action stays)")
                if event.WhichOneof("event") == "waiting" and not is_json:
                    _tell_waits(client, event.action_id)
                if event.WhichOneof("event") == "settled" and event.action_id == found:
                    ended = _code_of(error_of_outcome(event.settled.outcome, event.action_id))
        # Without one the end came before the cursor.
        return _code_of(error_of_action(client.get(found))) if ended is None else ended


def print_event(event: ActionEvent, *, is_json: bool, with_id: bool = False) -> None:
    from placet_server.cli.document import document_of
    from placet_server.cli.event import line_of

    if is_json:
        print_line(document_of(event))
    else:
        say(escape(f"{event.action_id}  {line_of(event)}" if with_id else line_of(event)))


def _tell_waits(client: Client, action_id: str) -> None:
    """Of history nothing: what it has waited for is decided."""
    from placet_server.cli.document import document_of
    from placet_server.cli.wait import wait_lines

    lines = wait_lines(document_of(wait) for wait in client.get(action_id).outcome.waits)
    for line in lines:
        warn(f"  {line}")
    if lines:
        warn("  Ctrl-C leaves, the action stays")


def _code_of(error: PlacetError | None) -> ExitCode:
    return ExitCode.SUCCEEDED if error is None else code_of_error(error)
