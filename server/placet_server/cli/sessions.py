"""`placet sessions`: conversations with agents, and what was said in them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json, Labels, Target, labels_of, seconds_of
from placet_server.cli.output import moment, print_document, print_line, print_table, say, warn
from placet_server.cli.tree import why_not_made

if TYPE_CHECKING:
    from placet import Client

LOOKED_AT_MAX = 1000

SessionId = Annotated[str, typer.Argument(metavar="ID", help="Session id, or a unique beginning of it.")]

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@commands.callback()
def sessions(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=LOOKED_AT_MAX, help="At most so many.")] = 20,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Your conversations with agents, newest first; begin one, show what was said, close one.

    \b
    Examples:
      placet sessions
      placet sessions create shop.helper --title A-1001
      placet sessions --json | jq -r '.sessions[] | select(.state == "OPEN") | .session_id'
      placet sessions show 01a22d21
      placet sessions close 01a22d21 --cancel
    """
    if context.invoked_subcommand is not None:
        if target or is_json:
            raise Complaint(f"options belong behind {context.invoked_subcommand}")
        return
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = [document_of(each) for each in islice(client.sessions(), limit)]
    if is_json:
        print_document({"sessions": found})
        return
    print_table(
        ("SESSION", "AGENT", "STATE", "RUNS", "UPDATED", "TITLE"), map(_row, found), empty="no session"
    )


@commands.command()
def create(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="With this agent alone. Default: any.", show_default=False)
    ] = "",
    title: Annotated[str, typer.Option(help="What it is about.")] = "",
    idle_time: Annotated[
        str,
        typer.Option(
            help="It is over after so long without a run: 2h, 7d. Default: 30 days.", show_default=False
        ),
    ] = "",
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key is the same session. Default: a fresh one."),
    ] = None,
    label: Labels = None,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Begin a session, and print its id; `placet ask --session` and `placet chat --session` go on with it.

    With --json its first resume token, too, which is told this once: for `placet sessions resume`.

    \b
    Examples:
      placet sessions create shop.helper --title A-1001
      placet sessions create shop.helper --idle-time 7d --json | jq -r .session.resume_token
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    idle_seconds = seconds_of(idle_time, "--idle-time") if idle_time else None
    labels = labels_of(label)
    with connect(target) as client:
        begun = client.create_session(agent, title=title, labels=labels, idle_time=idle_seconds, key=key)
        found = document_of(begun)
    if is_json:
        print_document({"session": found})
        return
    say(found["session_id"])
    warn(f"{found['state']}  session with {found['agent'] or 'any agent'}")


@commands.command()
def show(session_id: SessionId, target: Target = None, is_json: Json = False) -> None:
    """What was said in a session, oldest first, and what its agent called.

    With --json a document a line, as it may be long: the session, and then each message.

    \b
    Examples:
      placet sessions show 01a22d21
      placet sessions show 01a22d21 --json | jq -r '.message.parts[]?.text'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = find_session(client, session_id)
        session = document_of(client.session(found))
        messages = map(document_of, client.messages(found))
        if is_json:
            print_line({"session": session})
        # Page by page, as it may be long.
        for message in messages:
            if is_json:
                print_line({"message": message})
            else:
                _say(message)
    if is_json:
        return
    active = f", run {session['active_action_id']} is not over" if session["active_action_id"] else ""
    warn(f"{session['state']}  session {session['session_id']}{active}")


@commands.command()
def resume(
    session_id: SessionId,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its newest resume token.")],
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key with the same token is the same answer."),
    ] = None,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Go on with a session by its resume token, which is good once; prints the next one.

    \b
    Examples:
      placet sessions resume 01a22d21 "$TOKEN"
      placet sessions resume 01a22d21 "$TOKEN" --json | jq -r .session.resume_token
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = document_of(client.resume_session(find_session(client, session_id), token, key=key))
    if is_json:
        print_document({"session": found})
        return
    say(found["resume_token"])
    warn(f"{found['state']}  session {found['session_id']}; this token is told once")


@commands.command()
def close(
    session_id: SessionId,
    cancel: Annotated[bool, typer.Option("--cancel", help="With what is not over in it.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """End a session: no run begins in it any more. Refused while one is not over, unless that is to be cancelled.

    \b
    Examples:
      placet sessions close 01a22d21
      placet sessions close 01a22d21 --cancel
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        closed = document_of(client.close_session(find_session(client, session_id), cancel_active=cancel))
    if is_json:
        print_document({"session": closed})
        return
    say(f"{closed['state']}  {closed['session_id']}")


def find_session(client: Client, text: str) -> str:
    """The id of the caller's session that begins with `text`. Raises Complaint if none does, or several do."""
    from placet_server.cli.session import prefix_of

    prefix = prefix_of(text)
    if len(prefix) == 36:
        return prefix
    looked_at = [each.session_id for each in islice(client.sessions(page_size=500), LOOKED_AT_MAX)]
    matches = [each for each in looked_at if each.startswith(prefix)]
    if not matches and len(looked_at) == LOOKED_AT_MAX:
        told = f"none of your newest {LOOKED_AT_MAX} sessions begins with {prefix}; say the whole id of an older one"
        raise Complaint(told, ExitCode.NOT_FOUND)
    if not matches:
        raise Complaint(f"no session begins with {prefix}", ExitCode.NOT_FOUND)
    if len(matches) > 1:
        raise Complaint(f"several sessions begin with {prefix}; say more of it", kind="PREFIX_AMBIGUOUS")
    return matches[0]


def _row(session: dict[str, Any]) -> tuple[str, ...]:
    state = f"{session['state']}, busy" if session["active_action_id"] else session["state"]
    return (
        session["session_id"],
        session["agent"] or "any",
        state,
        str(session["runs"]),
        moment(session["update_time"]),
        session["title"],
    )


def _say(message: dict[str, Any]) -> None:
    who = "you" if message["role"] == "USER" else "agent"
    if message["problem"]:
        say(f"{who}: [cannot be told: {message['problem']}]")
    for part in message["parts"]:
        if "text" in part:
            say(f"{who}: {part['text']}")
        elif "json" in part:
            say(f"{who}: {part['json']}")
        else:
            say(f"{who}: [{part['binary']['media_type']}]")
    for call in message["calls"]:
        say(f"  {call['tool']}  {call['action_id'] or why_not_made(call)}")
