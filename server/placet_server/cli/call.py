"""`placet call`: run a capability."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import (
    CapabilityName,
    Input,
    Json,
    Labels,
    Target,
    labels_of,
    payload_of,
    seconds_of,
)
from placet_server.cli.output import pretty_json, print_document, say, warn
from placet_server.cli.wait import wait_lines

if TYPE_CHECKING:
    from placet import Client
    from placet.requests import CallArguments, OnWait

SILENT_SECONDS = 3.0
_ON_WAIT: dict[str, OnWait] = {"fail": "fail", "return": "return", "hold": "hold"}


def call(
    capability: CapabilityName,
    input_text: Input = "{}",
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: the same key again has the effect once. Default: a fresh one."),
    ] = None,
    version: Annotated[str, typer.Option(help="This version instead of the current one.")] = "",
    timeout: Annotated[str, typer.Option(help="For the whole call, retries included: 30, 90s, 5m.")] = "60s",
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the action is stored; it goes on without you.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show events as they come.")] = False,
    on_wait: Annotated[
        str,
        typer.Option(
            metavar="fail|return|hold",
            help="If people have to say yes first: end with an error, with the action, or stay while they decide.",
        ),
    ] = "fail",
    label: Labels = None,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Run a capability to its end. The exit code says how it ended.

    Lost replies and restarts of the server are bridged by sending the same request with the same key again.

    \b
    Examples:
      placet call orders.lookup '{"order": "A-1001"}'
      placet call payments.refund '{"order": "A-1001", "amount": "19.90"}' --key refund-A-1001
      placet call payments.refund '{"order": "A-1001", "amount": "19.90"}' --key refund-A-1001 --on-wait hold
      placet call reports.export --stream
      placet call reports.export '{"pause_seconds": 5}' --detach --label team=billing
      echo '{"order": "A-1001"}' | placet call orders.lookup - --json
    """
    from placet_server.cli.session import connect

    if detach and stream:
        raise Complaint("--detach and --stream exclude each other; `placet watch` shows a detached action")
    payload = payload_of(input_text)
    seconds = seconds_of(timeout, "--timeout")
    # Without --key the SDK makes one, and leaves it out for capabilities that take none.
    options: CallArguments = {
        "version": version,
        "labels": labels_of(label),
        "key": key,
        "on_wait": _on_wait(on_wait),
    }
    with connect(target) as client:
        try:
            run: Callable[..., int] = _detached if detach else _streamed if stream else _called
            return run(client, capability, payload, seconds, options, is_json)
        except KeyboardInterrupt:
            warn("interrupted: the server cancels the action unless somebody attaches to it again")
            return ExitCode.INTERRUPTED
        except ValueError as error:
            raise Complaint(str(error)) from None


def _called(
    client: Client, capability: str, payload: bytes, seconds: float, options: CallArguments, is_json: bool
) -> int:
    from placet_server.cli.document import document_of

    with patience(seconds):
        result = client.call(capability, payload, timeout=seconds, **options)
    found = document_of(result.action)
    is_waiting = found["state"] == "WAITING"
    if is_json:
        print_document({"action": found, "attached": result.attached})
        return ExitCode.WAITING if is_waiting else ExitCode.SUCCEEDED
    if is_waiting:
        tell_waiting(found)
        return ExitCode.WAITING
    say(pretty_json(result.output))
    action = result.action
    attached = ", joined by its key" if result.attached else ""
    key = f", key {action.idempotency_key}" if action.idempotency_key else ""
    warn(f"SUCCEEDED  action {result.action_id}, attempt {action.attempt}{key}{attached}")
    return ExitCode.SUCCEEDED


def tell_waiting(found: dict[str, Any], *, follow: str = "watch") -> None:
    """Of an action's document: the id alone on stdout, for whoever takes it from there. `follow`: by which command."""
    say(found["action_id"])
    warn("WAITING  people have to say yes first")
    for line in wait_lines(found["outcome"]["waits"]):
        warn(f"  {line}")
    warn(f"  next          placet {follow} {found['action_id']}")


def _on_wait(word: str) -> OnWait:
    if word not in _ON_WAIT:
        raise Complaint(f"--on-wait is {word!r}; say fail, return or hold")
    return _ON_WAIT[word]


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """On a terminal, says in time what is waited for: a server that is away looks like a slow handler."""
    said = f"no answer yet, waiting up to {seconds:g} s; is the server running?"
    timer = threading.Timer(SILENT_SECONDS, warn, [said])
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _streamed(
    client: Client, capability: str, payload: bytes, seconds: float, options: CallArguments, is_json: bool
) -> int:
    from placet_server.cli.watch import print_event

    with client.stream(capability, payload, timeout=seconds, **options) as events:
        for event in events:
            print_event(event, is_json=is_json)
    return ExitCode.SUCCEEDED


def _detached(
    client: Client, capability: str, payload: bytes, seconds: float, options: CallArguments, is_json: bool
) -> int:
    from placet_server.cli.document import document_of

    options["on_caller_gone"] = "detach"
    with client.stream(capability, payload, timeout=seconds, **options) as events:
        # The first event says that it is stored; what comes after is for whoever watches.
        next(events, None)
        action_id, cursor = events.action_id, events.cursor
    if is_json:
        print_document({"action_id": action_id, "cursor": cursor})
        return ExitCode.SUCCEEDED
    found = document_of(client.get(action_id))
    if found["state"] == "WAITING":
        tell_waiting(found)
        return ExitCode.SUCCEEDED
    say(action_id)
    warn(f"stored, and goes on without you: placet watch {action_id}")
    return ExitCode.SUCCEEDED
