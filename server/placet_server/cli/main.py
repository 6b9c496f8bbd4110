"""`placet`: which commands there are, and what becomes of their errors. Starts fast: gRPC, rich and the server are
imported by the commands that use them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from placet_server.cli import (
    action,
    ambiguous,
    answer,
    app,
    ask,
    call,
    callback,
    cancel,
    capability,
    chat,
    claim,
    connect,
    dead_letter,
    decide,
    explain,
    health,
    inbox,
    migrate,
    policy,
    queue,
    recovery,
    resume,
    revoke,
    serve,
    server,
    sessions,
    status,
    submit,
    version,
    watch,
    whoami,
    withdraw,
)
from placet_server.cli.complaint import Complaint
from placet_server.cli.demo import command as demo
from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.output import ReaderGone, print_line, warn

if TYPE_CHECKING:
    from placet.errors import PlacetError

EPILOG = """\b
Exit codes:
  0 succeeded   2 usage   3 refused   4 failed   5 cancelled   6 exhausted
  7 ambiguous   8 pending   9 not found   10 unauthenticated or forbidden
  11 unavailable   12 conflict   13 waiting for people   14 denied by people
  70 internal   130 interrupted
"""

cli = typer.Typer(
    name="placet",
    help="""Runs the actions of AI agents, and says truthfully what happened.

    \b
    Examples:
      placet demo                                      see what it is about
      placet dev                                       a server in this folder
      placet call orders.lookup '{"order": "A-1001"}'  run a capability
      placet ask shop.helper "Refund A-1001"           ask an agent
      placet inbox                                     what waits for you
      placet ambiguous                                 what is not known yet
    """,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

for command in (
    demo.demo,
    serve.dev,
    serve.serve,
    migrate.migrate,
    connect.connect,
    call.call,
    ask.ask,
    chat.chat,
    submit.submit,
    capability.capabilities,
    withdraw.withdraw,
    action.ls,
    action.show,
    watch.watch,
    resume.resume,
    cancel.cancel,
    inbox.inbox,
    decide.approve,
    decide.deny,
    answer.answer,
    revoke.revoke,
    claim.claim,
    claim.release,
    dead_letter.dead,
    dead_letter.redrive,
    ambiguous.ambiguous,
    ambiguous.resolve,
    explain.explain,
    server.servers,
    recovery.reconcile,
    recovery.recover,
    status.status,
    whoami.whoami,
    health.health,
    version.version,
):
    cli.command()(command)
cli.add_typer(queue.commands, name="queues")
cli.add_typer(policy.commands, name="policy")
cli.add_typer(sessions.commands, name="sessions")
cli.add_typer(callback.commands, name="deliveries")
cli.add_typer(app.commands, name="app")


def main() -> None:
    """The console script."""
    # Errors are told here; gRPC's own log lines would tell them again, in other words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One command line to its exit code. Errors end on stderr; with --json they are also the document on stdout."""
    is_json = "--json" in arguments
    try:
        ended = _command()(list(arguments), prog_name="placet", standalone_mode=False)
    except typer.Abort:
        warn("interrupted")
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        show = getattr(error, "show", None)
        show() if show is not None else warn(f"placet: {error.format_message()}")
        return _ended(is_json, ExitCode.USAGE, {"kind": "USAGE", "message": error.format_message()})
    except Complaint as error:
        warn(f"placet: {error.message}")
        return _ended(is_json, error.code, {"kind": error.kind, "message": error.message})
    except ReaderGone:
        # Whoever read us has gone; the interpreter's last flush must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except Exception as error:
        return _unexpected(error, is_json, arguments[0])
    if ended == ExitCode.INTERRUPTED and not isinstance(ended, ExitCode):
        # Typer's own answer to Ctrl-C, which says nothing.
        warn("interrupted")
    return ended if isinstance(ended, int) else ExitCode.SUCCEEDED


@cache
def _command() -> Any:
    """Made of the signatures of all commands: that takes longer than most commands do."""
    return typer.main.get_command(cli)


def _unexpected(error: Exception, is_json: bool, command: str) -> int:
    """An error of the SDK has its own text; anything else is a bug, and its traceback is what a report needs."""
    placet_error = _placet_error(error)
    if placet_error is None:
        sys.excepthook(type(error), error, error.__traceback__)
        return _ended(is_json, ExitCode.INTERNAL, {"kind": "INTERNAL", "message": repr(error)})
    from placet_server.cli.failure import document_of_error, text_of_error

    is_call, is_run = command in ("call", "submit", "ask"), command in ("ask", "chat", "resume")
    warn(f"placet: {text_of_error(placet_error, is_call=is_call, is_run=is_run)}")
    return _ended(is_json, code_of_error(placet_error), document_of_error(placet_error))


def _placet_error(error: Exception) -> PlacetError | None:
    if "placet.errors" not in sys.modules:
        return None
    from placet.errors import PlacetError

    return error if isinstance(error, PlacetError) else None


def _ended(is_json: bool, code: int, document: dict[str, object]) -> int:
    if is_json:
        print_line({"error": {**document, "exit_code": int(code)}})
    return code


if __name__ == "__main__":
    main()
