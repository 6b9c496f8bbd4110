"""`placet queues`: what waits."""

from __future__ import annotations

from typing import Any

from placet_server.cli.option import AllTenants, Json, Target
from placet_server.cli.output import print_document, print_table

COUNT_MAX = 100_000
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def queues(all_tenants: AllTenants = False, target: Target = None, is_json: Json = False) -> None:
    """Queues: what waits, and how long.

    A queue is listed while something waits in it. READY is due and waits for a server, DELAYED waits for its time.

    \b
    Examples:
      placet queues
      placet queues --all-tenants
      placet queues --json | jq '.queues[] | select(.ready > 1000)'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = [document_of(queue) for queue in client.queues("-" if all_tenants else "")]
    if is_json:
        print_document({"queues": found})
        return
    print_table(("QUEUE", "READY", "DELAYED", "OLDEST"), map(_row, found), empty="nothing waits")


def span_text(seconds: float) -> str:
    """The two largest units that it has: 3m 12s, 2d 4h."""
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _row(queue: dict[str, Any]) -> tuple[str, ...]:
    oldest = queue["oldest"]
    return (
        queue["name"],
        _count(queue["ready"]),
        _count(queue["delayed"]),
        "" if oldest is None else span_text(oldest),
    )


def _count(count: int) -> str:
    return f"{COUNT_MAX}+" if count > COUNT_MAX else str(count)
