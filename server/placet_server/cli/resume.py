"""`placet resume`: going on with an action by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import ActionId, Json, Target, seconds_of
from placet_server.cli.output import pretty_json, print_document, print_line, say, warn

if TYPE_CHECKING:
    from placet import Client
    from placet.requests import OnWait
    from placet.v1.action_pb2 import Action

CALL_SECONDS, RUN_SECONDS = "60s", "5m"


def resume(
    action_id: ActionId,
    timeout: Annotated[
        str,
        typer.Option(
            help=f"For the whole call, retries included: 30, 90s, 5m. Default: {CALL_SECONDS}; of a run {RUN_SECONDS}.",
            show_default=False,
        ),
    ] = "",
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Tell what happens as it does; or only the end. Default: what happens, for a run of an agent, without "
            "--json.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str,
        typer.Option(
            metavar="CURSOR", help="Only what came after this cursor; of a run by default what comes now."
        ),
    ] = "",
    hold: Annotated[
        bool, typer.Option("--hold", help="If people have to say yes first: stay while they decide.")
    ] = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Go on with an action to its end. The exit code says how it ended.

    Joins whoever runs it, or has it run if it is ready and nobody does: as the same call with its key would, without
    its input at hand. What has ended is told and never run again.

    A run of an agent is told as `placet ask` tells it: its answer at a terminal as it is said, from where it stands,
    what it calls and waits for, and Ctrl-C asks whether to leave the run or to cancel it. With --json there is one
    document, what became of it; with --stream --json each event is one on a line, before it.

    \b
    Examples:
      placet resume 01996f0a-3c4d
      placet resume 01996f0a-3c4d --hold --timeout 1h
      placet resume 01996f0a-3c4d --stream --after "$CURSOR"
      placet resume 01996f0a-3c4d --stream --json | jq -r '.delta.text // empty'
    """
    from placet_server.cli.session import connect, find_action

    if after and stream is False:
        raise Complaint("--after goes with --stream")
    seconds_of(timeout or CALL_SECONDS, "--timeout")
    with connect(target) as client:
        found = client.get(find_action(client, action_id))
        is_run = _is_run(client, found)
        seconds = seconds_of(timeout or (RUN_SECONDS if is_run else CALL_SECONDS), "--timeout")
        is_streamed = bool(after) or (is_run and not is_json if stream is None else stream)
        if is_run:
            on_wait: OnWait = "hold" if hold else "return"
            return _join(client, found, after, seconds, on_wait, is_streamed=is_streamed, is_json=is_json)
        if is_streamed:
            return _stream(client, found, after, seconds, hold=hold, is_json=is_json)
        return _wait(client, found, seconds, hold=hold, is_json=is_json)


def _is_run(client: Client, found: Action) -> bool:
    """Also if it has not opened yet, as far as we may see what it is of."""
    from placet.errors import NotFoundError, PermissionDeniedError
    from placet.v1.capability_pb2 import CapabilityKind

    if found.HasField("usage"):
        return True
    try:
        kind = client.capability(found.capability, found.version).kind
    except (NotFoundError, PermissionDeniedError):
        return False
    return kind == CapabilityKind.CAPABILITY_KIND_AGENT


def _join(
    client: Client,
    found: Action,
    after: str,
    seconds: float,
    on_wait: OnWait,
    *,
    is_streamed: bool,
    is_json: bool,
) -> int:
    from placet_server.cli.ask import tell_reply
    from placet_server.cli.run_view import Left, Listening, RunView

    view = RunView(client, is_json=is_json, tells_waits=on_wait == "hold", is_silent=not is_streamed)
    try:
        reply = Listening(client, view, seconds=seconds, on_wait=on_wait).joined(found, after or None)
    except Left:
        return ExitCode.PENDING
    return tell_reply(
        reply, view.answer, (print_line if is_streamed else print_document) if is_json else None
    )


def _stream(client: Client, found: Action, after: str, seconds: float, *, hold: bool, is_json: bool) -> int:
    from placet_server.cli.watch import print_event

    on_wait: OnWait | None = "hold" if hold else None
    with client.resume_stream(found.action_id, after=after, on_wait=on_wait, timeout=seconds) as events:
        for event in events:
            print_event(event, is_json=is_json)
    return ExitCode.SUCCEEDED


def _wait(client: Client, found: Action, seconds: float, *, hold: bool, is_json: bool) -> int:
    from placet_server.cli.call import patience
    from placet_server.cli.document import document_of

    with patience(seconds):
        result = client.resume(found.action_id, on_wait="hold" if hold else None, timeout=seconds)
    if is_json:
        print_document({"action": document_of(result.action)})
        return ExitCode.SUCCEEDED
    say(pretty_json(result.output))
    warn(f"SUCCEEDED  action {result.action_id}, attempt {result.action.attempt}")
    return ExitCode.SUCCEEDED
