"""`placet chat`: a conversation with an agent, line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.option import Json, Target, seconds_of
from placet_server.cli.output import pretty_json, print_line, say, warn

if TYPE_CHECKING:
    from placet import Client
    from placet.ask_requests import Reply
    from placet.errors import PlacetError

QUIT = "/quit"


def chat(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name, for example shop.helper.")],
    session: Annotated[
        str, typer.Option(metavar="ID", help="Go on with this session. Default: begin one.")
    ] = "",
    timeout: Annotated[str, typer.Option(help="How long to wait for each answer: 30, 90s, 5m.")] = "5m",
    hold: Annotated[
        bool, typer.Option("--hold", help="If people have to say yes first: stay while they decide.")
    ] = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Talk with an agent: each line is a message, and its answer follows. The end of the input, or /quit, ends it.

    The agent knows what was said before in the session. With --json each answer is one line. If people have to decide
    something first, this tells what, and ends; the run goes on once they have. Read from a pipe, it ends at the first
    message that has no answer, with the exit code that `placet ask` has for it.

    \b
    Examples:
      placet chat shop.helper
      placet chat shop.helper --session 01a22d21-2866-7196-b9e2-ee6bac898471
      printf 'Where is A-1001?\\nRefund it.\\n' | placet chat shop.helper --json
    """
    from placet_server.cli.session import connect
    from placet_server.cli.sessions import find_session

    seconds = seconds_of(timeout, "--timeout")
    with connect(target) as client:
        session_id = find_session(client, session) if session else client.create_session(agent).session_id
        warn(f"session {session_id}")
        try:
            return _talk(client, agent, session_id, seconds, hold=hold, is_json=is_json)
        except KeyboardInterrupt:
            warn(f"interrupted; goes on with: placet chat {agent} --session {session_id}")
            return ExitCode.INTERRUPTED


def _talk(client: Client, agent: str, session_id: str, seconds: float, *, hold: bool, is_json: bool) -> int:
    from placet.errors import PlacetError

    for line in _lines():
        try:
            reply = client.ask(
                agent, line, session=session_id, timeout=seconds, on_wait="hold" if hold else "return"
            )
        except PlacetError as error:
            if not sys.stdin.isatty():
                raise
            _complain(error)
            continue
        if not _told(reply, session_id, is_json):
            return ExitCode.WAITING
    return ExitCode.SUCCEEDED


def _lines() -> Iterator[str]:
    """What is said, with a prompt for people."""
    is_person = sys.stdin.isatty()
    while True:
        if is_person:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line or line.strip() == QUIT:
            return
        if line.strip():
            yield line.rstrip("\r\n")


def _told(reply: Reply, session_id: str, is_json: bool) -> bool:
    """Whether it is an answer."""
    from placet_server.cli.call import tell_waiting
    from placet_server.cli.document import document_of

    found = document_of(reply.action)
    is_answer = bool(found["state"] != "WAITING")
    if is_json:
        print_line({"session_id": session_id, "action": found, "text": reply.text})
    elif is_answer:
        say(reply.text or pretty_json(reply.output))
    else:
        tell_waiting(found)
    return is_answer


def _complain(error: PlacetError) -> None:
    from placet_server.cli.failure import text_of_error

    warn(f"placet: {text_of_error(error)} [{int(code_of_error(error))}]")
