"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode

# The most that a page has.
PAGE_SIZE_MAX = 1000

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Server, host:port. Default: $PLACET_TARGET, else the token file of `placet dev`.",
        show_default=False,
    ),
]
ActionId = Annotated[str, typer.Argument(metavar="ID", help="Action id, or a unique beginning of it.")]
AppReference = Annotated[
    str, typer.Option("--app", metavar="MODULE:OBJECT", help="The app, or the name of its entry point.")
]
CapabilityName = Annotated[
    str, typer.Argument(metavar="CAPABILITY", help="Its name, for example orders.lookup.")
]
Input = Annotated[str, typer.Argument(metavar="JSON|@FILE|-", help="The input: JSON text, a file, or stdin.")]
AllTenants = Annotated[
    bool, typer.Option("--all-tenants", help="Of all tenants together; needs the scope operator.")
]
Capabilities = Annotated[
    list[str] | None, typer.Option("--capability", help="Only of this capability; may be given again.")
]
Inline = Annotated[
    str,
    typer.Option(
        "--inline",
        metavar="FILE",
        help="An agent in no manifest: a TOML or JSON file with model, instructions, tools, delegates and max_tokens.",
    ),
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="K=V", help="A label; may be given again.")
]

FILE_BYTES_MAX = 64 * 2**20

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str, option: str) -> float:
    """A span such as 30, 500ms, 90s, 5m, 2h, 7d. Raises Complaint unless it is positive."""
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _UNIT_SECONDS[found[2] or "s"] if found else 0.0
    if not 0 < seconds < 1e9:
        raise Complaint(f"{option} is {text!r}; say a span such as 30, 500ms, 90s, 5m, 2h or 7d")
    return seconds


def moment_of(text: str, option: str) -> datetime:
    """A span before now, or a time such as 2030-01-31T12:00:00Z; without a zone it is local time."""
    if _SPAN.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(seconds=seconds_of(text, option))
    return time_of(text, option, "a span such as 2h, or a time")


def time_of(text: str, option: str, wanted: str = "a time") -> datetime:
    """A time such as 2030-01-31T12:00:00Z; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Complaint(f"{option} is {text!r}; say {wanted} such as 2030-01-31T12:00:00Z") from None


def labels_of(texts: list[str] | None) -> dict[str, str]:
    """Raises Complaint for what is not K=V, or two values for one K."""
    labels: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Complaint(f"--label is {text!r}; say --label name=value")
        if labels.setdefault(name, value) != value:
            raise Complaint(f"--label {name} is given twice, with two values")
    return labels


def payload_of(text: str) -> bytes:
    """JSON text as given: the server judges it. Raises Complaint for what is not even text."""
    if text == "-":
        payload = sys.stdin.buffer.read()
    elif text.startswith("@"):
        payload = bytes_of_file(text[1:], "the input")
    else:
        payload = text.encode("utf-8", "surrogateescape")
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        raise Complaint(f"the input is not UTF-8 (byte {error.start})", ExitCode.REFUSED) from None
    return payload


def bytes_of_file(path: str, what: str, *, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Raises Complaint for a file that cannot be read, or is too large, without reading more of it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise Complaint(f"{what} {path}: {error.strerror or error}") from None
    if len(content) > bytes_max:
        raise Complaint(f"{what} {path}: it has more than {bytes_max} bytes", ExitCode.REFUSED)
    return content
