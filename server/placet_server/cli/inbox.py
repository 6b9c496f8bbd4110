"""`placet inbox`: what waits for you, soonest expiry first, as it changes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import PAGE_SIZE_MAX, Capabilities, Json, Target
from placet_server.cli.output import print_document, print_table, warn

if TYPE_CHECKING:
    from placet import Client

Rows = list[dict[str, Any]]
TICK_SECONDS = 1.0
# What is read again even if nobody said that it changed.
READ_SECONDS = 10.0
# Of the screen: the table's head, what is below it, and the prompt.
LINES_BESIDE = 6
TITLE_CHARACTERS_MAX = 120
COLUMNS = ("APPROVAL", "EXPIRES", "ASKED BY", "WHAT", "STILL NEEDED", "")


def inbox(
    all_: Annotated[
        bool, typer.Option("--all", help="What waits for others, too, and why it is not yours.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Print it, and return: as without a terminal.")
    ] = False,
    capability: Capabilities = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """What waits for you to decide, soonest expiry first; on a terminal as it changes, until Ctrl-C.

    `placet show ID` tells what exactly would run, `placet approve` and `placet deny` decide it.

    \b
    Examples:
      placet inbox
      placet inbox --once --all
      placet inbox --json | jq -r '.approvals[].approval_id'
    """
    from placet_server.cli.session import connect

    with connect(target) as client:

        def read() -> Rows:
            return _read(client, capability or (), limit, all_=all_)

        if not once and not is_json and _is_screen():
            return _live(client, read, capability or ())
        found = read()
    if is_json:
        print_document({"approvals": found})
        return ExitCode.SUCCEEDED
    print_table(COLUMNS, map(_row, found), empty="nothing waits" if all_ else "nothing waits for you")
    if found:
        warn("what exactly would run: placet show ID; then placet approve ID, or placet deny ID --reason …")
    return ExitCode.SUCCEEDED


def _is_screen() -> bool:
    """What is written on it can be written over."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _read(client: Client, capabilities: Sequence[str], limit: int, *, all_: bool) -> Rows:
    from placet_server.cli.document import document_of

    listed = client.approvals(
        capabilities=capabilities, eligible_only=not all_, page_size=min(limit, PAGE_SIZE_MAX)
    )
    wanted = (each for each in listed if all_ or each.eligibility.eligible)
    return [document_of(each) for each in islice(wanted, limit)]


def _live(client: Client, read: Callable[[], Rows], capabilities: Sequence[str]) -> int:
    """Until Ctrl-C, which changes nothing."""
    from rich.console import Console
    from rich.live import Live

    from placet.errors import TransportError, UnavailableError

    changed = threading.Event()
    follower = threading.Thread(target=_follow, args=(client, capabilities, changed), daemon=True)
    screen = Console(highlight=False, markup=False, emoji=False)
    found, trouble = read(), ""
    follower.start()
    try:
        with Live(_shown(found, trouble, screen.height), console=screen, auto_refresh=False) as live:
            due = time.monotonic() + READ_SECONDS
            while True:
                if changed.wait(TICK_SECONDS) or time.monotonic() >= due:
                    changed.clear()
                    due = time.monotonic() + READ_SECONDS
                    try:
                        found, trouble = read(), ""
                    except (TransportError, UnavailableError) as error:
                        trouble = f"as it was; the server does not answer: {error}"
                live.update(_shown(found, trouble, screen.height), refresh=True)
    except KeyboardInterrupt:
        return ExitCode.SUCCEEDED


def _follow(client: Client, capabilities: Sequence[str], changed: threading.Event) -> None:
    """Says when to read again. Without it that is seen a little later."""
    from placet.errors import PlacetError

    try:
        with client.watch_approvals(capabilities=capabilities, from_now=True) as feed:
            for _ in feed:
                changed.set()
    except PlacetError:
        return


def _shown(found: Rows, trouble: str, height: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    height = max(height - LINES_BESIDE, 3)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for each in found[:height]:
        table.add_row(*(Text(escape(cell)) for cell in _row(each)))
    more = f"and {len(found) - height} more: placet inbox --once" if len(found) > height else ""
    lines = [more, escape(trouble), "placet show ID, then placet approve ID or placet deny ID; Ctrl-C leaves"]
    head = [table] if found else [Text("nothing waits")]
    return Group(*head, *(Text(line) for line in lines if line))


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    from placet_server.cli.approval import flagged, problem_words, time_left

    who = found["eligibility"] or {"eligible": False, "problem": ""}
    title = found["title"]
    claimed = f"claimed by {found['claimed_by']}" if found["claimed_by"] else ""
    yours = "" if who["eligible"] else f"you {problem_words(who['problem'])}"
    return (
        found["approval_id"],
        time_left(found["expire_time"]),
        flagged((found["requester"] or {}).get("subject", "")),
        title if len(title) <= TITLE_CHARACTERS_MAX else f"{title[:TITLE_CHARACTERS_MAX]}…",
        found["missing"],
        "; ".join(filter(None, (claimed, yours))),
    )
