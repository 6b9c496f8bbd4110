"""What is said of a question to an agent, beside its words, and how these texts are read."""

from __future__ import annotations

import json
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import bytes_of_file

if TYPE_CHECKING:
    from placet.agent import Budget
    from placet.ask_requests import Part

BOUNDS = ("turns", "calls", "equal_calls", "tokens", "cost_micros", "seconds")

# No part of a message takes more.
FILE_BYTES_MAX = 3 * 2**20

Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", metavar="K=V", help="For a place in its instructions; may be given again."),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="K=N",
        help="What a run may spend, within its agent's budget: turns, calls, tokens, cost_micros or seconds.",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="PATH",
        help="A part of the message, beside its text: .json as JSON, all else as bytes; may be given again.",
    ),
]
InSession = Annotated[
    str,
    typer.Option("--session", metavar="ID", help="Go on with this session, or a unique beginning of its id."),
]
Busy = Annotated[
    str,
    typer.Option(
        "--on-busy", metavar="refuse|queue|cancel_previous", help="If the session has a run that is not over."
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: the same key again is the same run. Default: a fresh one."),
]
Hold = Annotated[
    bool, typer.Option("--hold", help="If people have to say yes first: stay while they decide.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return once the run is stored; it goes on without you.")
]
Stream = Annotated[
    bool,
    typer.Option("--stream/--no-stream", help="Tell what happens as it does; or only the answer."),
]


def arguments_of(texts: list[str] | None) -> dict[str, str]:
    """Raises Complaint for what is not K=V."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Complaint(f"--argument is {text!r}; say --argument name=value")
        found[name] = value
    return found


def budget_of(texts: list[str] | None) -> Budget | None:
    """Raises Complaint for what bounds nothing."""
    from placet.agent import Budget

    if not texts:
        return None
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in BOUNDS:
            raise Complaint(f"--budget is {text!r}; say one of {', '.join(BOUNDS)}, such as --budget turns=3")
        if not (number.isascii() and number.isdecimal()) or int(number) == 0:
            raise Complaint(f"--budget {name} is {number!r}; say a whole number, from 1")
        found[name] = int(number)
    seconds = found.pop("seconds", None)
    return Budget(**found, active_time=seconds)


def text_of(message: str) -> str:
    """Or of stdin, for `-`. Raises Complaint if it says nothing."""
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise Complaint("say what it is asked: the message is empty")
    return text


def parts_of(text: str, files: list[str] | None) -> Sequence[Part]:
    """Raises Complaint for a file that cannot be read, or says it is JSON and is none."""
    return [text, *map(_part, files or ())]


def _part(file: str) -> Part:
    from placet.ask_requests import BinaryPart, JsonPart

    content = bytes_of_file(file, "the file", bytes_max=FILE_BYTES_MAX)
    if Path(file).suffix.lower() == ".json":
        try:
            json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Complaint(f"{file} is no JSON: {error}", ExitCode.REFUSED) from None
        return JsonPart(content)
    media_type = mimetypes.guess_type(file)[0] or "application/octet-stream"
    return BinaryPart(media_type=media_type, data=content, name=Path(file).name)
