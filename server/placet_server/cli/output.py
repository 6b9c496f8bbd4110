"""Everything that commands print, in two forms: text for people, JSON for programs.

With --json stdout carries one document (or one per line for streams) and nothing else. Errors go to stderr as text;
with --json they are, moreover, the document on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from placet_server.cli.escape import escape, escape_block, escape_json

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 100_000


class ReaderGone(Exception):
    """Nobody reads stdout any more."""


def print_document(value: Any) -> None:
    """One JSON document, indented."""
    _write(escape_json(json.dumps(value, ensure_ascii=False, indent=2)))


def print_line(value: Any) -> None:
    """One JSON document on one line, as part of a stream."""
    _write(escape_json(json.dumps(value, ensure_ascii=False)))


def say(text: str = "") -> None:
    """A line for people; what is foreign in it is escaped here."""
    _write(escape_block(text))


def warn(text: str) -> None:
    """A line for people beside the result: on stderr."""
    print(escape_block(text), file=sys.stderr, flush=True)


def counted(count: int, name: str) -> str:
    """1 action, 2 actions."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def moment(time: str | None) -> str:
    """A document's time for people: to the second, in UTC."""
    return (time or "")[:19].replace("T", " ")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Cells are foreign text. `empty` is said when there are no rows."""
    shown = list(rows)
    if not shown:
        say(empty)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in shown:
        table.add_row(*(Text(escape(cell), style=style_of(cell)) for cell in row))
    _print_trimmed(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names with values, one a line, whatever is in them; empty values are left out."""
    shown = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name:<{width}}  {escape(value)}")


def pretty_json(value: Any) -> str:
    """For people: as short as it is readable."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)


def style_of(word: str) -> str:
    """A colour where the word itself says how it stands; colours never say more than the words."""
    return {
        "SUCCEEDED": "green",
        "FAILED": "red",
        "CANCELLED": "yellow",
        "EXHAUSTED": "red",
        "AMBIGUOUS": "bold magenta",
        "RUNNING": "cyan",
        "QUEUED": "cyan",
        "WAITING": "yellow",
        "DENIED": "red",
        "REFUSED": "red",
        "SERVING": "green",
        "NOT_SERVING": "red",
        "UNREACHABLE": "red",
        "held": "green",
        "BROKEN": "bold red",
    }.get(word, "")


def has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """As wide as the terminal; without one nothing is ever folded."""
    from rich.console import Console

    if has_colour():
        return Console(highlight=False, markup=False, emoji=False)
    width = None if sys.stdout.isatty() else WIDE
    return Console(
        highlight=False, markup=False, emoji=False, color_system=None, force_terminal=False, width=width
    )


def _print_trimmed(table: Any) -> None:
    if has_colour():
        console().print(table)
        return
    plain = console()
    with plain.capture() as captured:
        plain.print(table)
    _write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def write(text: str) -> None:
    """As it is, which is for who has escaped it."""
    _write(text, end="")


def _write(text: str, end: str = "\n") -> None:
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise ReaderGone from None
