"""`placet submit`: store an action for a server to run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import (
    Json,
    Labels,
    Target,
    labels_of,
    payload_of,
    seconds_of,
    time_of,
)
from placet_server.cli.output import pretty_json, print_document, say, warn

if TYPE_CHECKING:
    from placet import Client, Submitted
    from placet.v1.action_pb2 import Action


CapabilityName = Annotated[
    str, typer.Argument(metavar="CAPABILITY", help="Its name, for example orders.lookup.", show_default=False)
]
InputText = Annotated[
    str | None,
    typer.Argument(
        metavar="JSON|@FILE|-",
        help="The input: JSON text, a file, or stdin. Default: {}.",
        show_default=False,
    ),
]
Batch = Annotated[
    str, typer.Option(metavar="FILE|-", help="Many instead of one: a JSON object a line, of a file or stdin.")
]
Key = Annotated[
    str | None,
    typer.Option(help="Idempotency key: the same key again has the effect once. Default: a fresh one."),
]
QueueName = Annotated[str, typer.Option(help="The queue; made by its first action. Default: default.")]
Priority = Annotated[int | None, typer.Option(min=0, max=9, help="From 0, first, to 9, last. Default: 5.")]
Delay = Annotated[str, typer.Option(metavar="SPAN", help="Not run before so long: 90s, 5m, 2h.")]
At = Annotated[str, typer.Option("--at", metavar="TIME", help="Not run before: 2030-01-31T12:00:00Z.")]
Version = Annotated[str, typer.Option(help="This version instead of the current one.")]
AttemptTimeout = Annotated[
    str, typer.Option(metavar="SPAN", help="For each attempt; the contract bounds it.")
]
Wait = Annotated[
    str, typer.Option(metavar="SPAN", help="Stay so long at most for its end, which is the exit code then.")
]


def submit(
    capability: CapabilityName = "",
    input_text: InputText = None,
    batch: Batch = "",
    queue: QueueName = "",
    priority: Priority = None,
    delay: Delay = "",
    at: At = "",
    key: Key = None,
    version: Version = "",
    attempt_timeout: AttemptTimeout = "",
    label: Labels = None,
    wait: Wait = "",
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Store an action and return: a server runs it from its queue.

    Prints the action's id. Exit code 0 says that it is stored, not that it has run. With --wait it is the output that
    is printed, and the exit code is that of the outcome; it stays, too, while people decide.

    A line of --batch has capability and input, and, where it wants, key, queue, priority, delay, at, version,
    attempt_timeout and labels; options say what lines do not. Each line is stored or refused by itself and has a
    result line, in order, with its number. With keys the same file may be sent again. Exit code 0 if all are stored, 12
    if some are, else why none is.

    \b
    Examples:
      placet submit reports.export
      placet submit payments.refund '{"order": "A-1001", "amount": "19.90"}' --key refund-A-1001 --wait 60s
      placet submit reports.export --queue nightly --priority 9 --at 2030-01-31T02:00:00Z
      placet submit reports.export --delay 5m --json | jq -r .action.action_id
      placet submit --batch refunds.jsonl --queue nightly
      echo '{"capability": "orders.lookup", "input": {"order": "A-1001"}, "key": "look-1"}' | placet submit --batch -
    """
    if delay and at:
        raise Complaint("--delay and --at exclude each other")
    options: dict[str, Any] = {
        "queue": queue,
        "priority": priority,
        "delay": seconds_of(delay, "--delay") if delay else None,
        "ready_time": time_of(at, "--at") if at else None,
        "version": version,
        "attempt_timeout": seconds_of(attempt_timeout, "--attempt-timeout") if attempt_timeout else None,
        "labels": labels_of(label),
    }
    if batch:
        if capability or input_text is not None or key is not None or wait:
            raise Complaint(
                "--batch excludes CAPABILITY, JSON, --key and --wait: its lines say what to submit"
            )
        return _many(batch, options, target, is_json=is_json)
    if not capability:
        raise Complaint("say which CAPABILITY, or --batch FILE")
    options["key"] = key
    seconds = seconds_of(wait, "--wait") if wait else None
    payload = payload_of("{}" if input_text is None else input_text)
    return _one(capability, payload, options, seconds, target, is_json=is_json)


def _many(path: str, options: dict[str, Any], target: str | None, *, is_json: bool) -> int:
    from placet_server.cli.batch import submit_batch
    from placet_server.cli.session import connect

    with connect(target) as client:
        return submit_batch(client, path, options, is_json=is_json)


def _one(
    capability: str,
    payload: bytes,
    options: dict[str, Any],
    seconds: float | None,
    target: str | None,
    *,
    is_json: bool,
) -> int:
    """`seconds`: how long to stay for its end; None: not at all."""
    from placet_server.cli.session import connect

    with connect(target) as client:
        try:
            submitted = client.submit(capability, payload, **options)
        except ValueError as error:
            raise Complaint(str(error)) from None
        if not is_json:
            _tell(submitted, is_id=seconds is None)
        action = submitted.action if seconds is None else _ended(client, submitted, seconds)
    if is_json:
        from placet_server.cli.document import document_of

        print_document({"action": document_of(action), "attached": submitted.attached})
    elif seconds is not None:
        _tell_end(action)
    return ExitCode.SUCCEEDED


def _tell(submitted: Submitted, *, is_id: bool) -> None:
    """Where it stands; the id alone is on stdout, for whoever takes it from there."""
    from placet.v1.action_pb2 import ActionState
    from placet_server.cli.document import document_of, time_text, word
    from placet_server.cli.wait import wait_lines

    action = submitted.action
    if is_id:
        say(action.action_id)
    key = f", key {action.idempotency_key}" if action.idempotency_key else ""
    if submitted.attached:
        text = f"{word(ActionState.DESCRIPTOR, action.state)}  its key was known, nothing is added"
    elif action.state == ActionState.ACTION_STATE_WAITING:
        text = "stored; people have to say yes before a server runs it"
    elif action.ready_time.ToNanoseconds() > action.create_time.ToNanoseconds():
        text = f"stored in queue {action.queue}, not run before {time_text(action.ready_time)}"
    else:
        text = f"stored in queue {action.queue}; a server runs it"
    warn(f"{text}{key}: placet watch {action.action_id}")
    for line in wait_lines(document_of(wait) for wait in action.outcome.waits):
        warn(f"  {line}")


def _tell_end(action: Action) -> None:
    say(pretty_json(json.loads(action.output_json) if action.output_json else None))
    warn(f"SUCCEEDED  action {action.action_id}, attempt {action.attempt}")


def _ended(client: Client, submitted: Submitted, seconds: float) -> Action:
    """The action that succeeded. Raises what it ended with; a PendingError if it has not in that time."""
    from placet.errors import PendingError
    from placet.status import error_of_action

    try:
        action = client.wait(submitted.action_id, timeout=seconds)
    except KeyboardInterrupt:
        raise Complaint(
            f"interrupted: the action goes on: placet watch {submitted.action_id}", ExitCode.INTERRUPTED
        ) from None
    error = error_of_action(action)
    if isinstance(error, PendingError):
        raise PendingError(
            f"it has not ended within {seconds:g} s and goes on: placet watch {action.action_id}",
            code=error.code,
            reason=error.reason,
            outcome=error.outcome,
            action_id=action.action_id,
        )
    if error is not None:
        raise error
    return action
