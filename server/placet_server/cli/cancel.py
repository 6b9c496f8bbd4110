"""`placet cancel`: one action, or all that match."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.action import print_action, states_of
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, Labels, Target, labels_of, moment_of
from placet_server.cli.output import counted, print_document, say

if TYPE_CHECKING:
    from placet import CancelCount, Client
    from placet.requests import Which

ALL_SECONDS = 600.0


def cancel(
    action_id: Annotated[
        str, typer.Argument(metavar="ID", help="Action id, or a unique beginning of it.", show_default=False)
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="All open ones that match the options.")] = False,
    capability: Annotated[
        list[str] | None, typer.Option(help="With --all: of this capability; may be given again.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="With --all: in this state, e.g. queued; may be given again.")
    ] = None,
    queue: Annotated[str, typer.Option(help="With --all: submitted to this queue.")] = "",
    requester: Annotated[str, typer.Option(help="With --all: asked for by this subject.")] = "",
    agents: Annotated[bool, typer.Option("--agents", help="With --all: runs of agents alone.")] = False,
    label: Labels = None,
    since: Annotated[str, typer.Option(help="With --all: created since: 2h, or 2030-01-31T12:00:00Z.")] = "",
    reason: Annotated[str, typer.Option(help="Kept with the event.")] = "",
    look: Annotated[bool, typer.Option("--look", help="Say how many, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at the terminal.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Ask an action to stop, or with --all every open one that matches.

    It is CANCELLED only once its handler has stopped; `placet watch` shows when. What waits in a queue ends at once.

    \b
    Examples:
      placet cancel 01996f0a-3c4d --reason "wrong order"
      placet cancel --all --queue nightly --look
      placet cancel --all --capability mail.send --label campaign=spring --yes
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    which: Which = {
        "capabilities": capability or (),
        "states": states_of(state or []),
        "queue": queue,
        "requester": requester,
        "agent_runs": agents,
        "labels": labels_of(label),
        "create_time_min": moment_of(since, "--since") if since else None,
    }
    is_filter = any(which.values())
    if bool(action_id) == every or (action_id and (is_filter or look)):
        raise Complaint("say which: an id, or --all with options that say which")
    if every and not is_filter:
        raise Complaint(
            "--all needs at least one of --capability, --state, --queue, --requester, --agents, --label, --since"
        )
    with connect(target) as client:
        if every:
            done = _cancel_all(client, which, reason, look=look, ask=not (yes or is_json))
            _tell(done, look=look, is_json=is_json)
            return
        found = document_of(client.cancel(find_action(client, action_id), reason))
    if is_json:
        print_document(found)
        return
    print_action(found)


def _cancel_all(client: Client, which: Which, reason: str, *, look: bool, ask: bool) -> CancelCount:
    if ask and not look and sys.stdin.isatty():
        seen = client.cancel_all(validate_only=True, timeout=ALL_SECONDS, **which)
        if not typer.confirm(f"{counted(seen.matched, 'action')} open. Cancel them?", err=True):
            raise Complaint("nothing was changed", ExitCode.INTERRUPTED)
    return client.cancel_all(reason=reason, validate_only=look, timeout=ALL_SECONDS, **which)


def _tell(done: CancelCount, *, look: bool, is_json: bool) -> None:
    if is_json:
        print_document({"matched": done.matched, "marked": done.marked, "ended": done.ended})
    elif look:
        say(f"{counted(done.matched, 'action')} would be asked to stop: nothing was changed")
    else:
        matched = counted(done.matched, "action")
        say(f"{matched} matched, {done.marked} asked to stop, {done.ended} of them ended at once")
