"""`placet queues`: what waits, and whether it may begin."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.option import AllTenants, Json, Target
from placet_server.cli.output import moment, print_document, print_table, say, warn

COUNT_MAX = 100_000
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@commands.callback()
def queues(
    context: typer.Context, all_tenants: AllTenants = False, target: Target = None, is_json: Json = False
) -> None:
    """Queues: what waits, and how long; pause and resume.

    A queue is listed while something waits in it, or while it is paused. READY is due and waits for a server, DELAYED
    waits for its time. BEGIN/S and END/S, shown where there are any, are attempts that began and actions that ended
    in a second, in the last whole minute. UNROUTABLE, shown where there is any, is what of READY no living server
    takes: see `placet servers`.

    \b
    Examples:
      placet queues
      placet queues --all-tenants
      placet queues --json | jq '.queues[] | select(.ready > 1000)'
      placet queues pause nightly --reason "the provider is down"
      placet queues resume nightly
    """
    if context.invoked_subcommand is not None:
        if all_tenants or target or is_json:
            raise Complaint(f"options belong behind {context.invoked_subcommand}")
        return
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = [document_of(queue) for queue in client.queues("-" if all_tenants else "")]
    if is_json:
        print_document({"queues": found})
        return
    shown = ["QUEUE", "READY", "DELAYED", "OLDEST"]
    if any(queue["claims_per_second"] or queue["settles_per_second"] for queue in found):
        shown += ["BEGIN/S", "END/S"]
    if any(queue["unroutable"] for queue in found):
        shown += ["UNROUTABLE"]
    if any(queue["paused"] for queue in found):
        shown += ["PAUSED", "REASON"]
    rows = [_row(queue) for queue in found]
    print_table(shown, ([row[name] for name in shown] for row in rows), empty="nothing waits")
    if "UNROUTABLE" in shown:
        warn("no living server takes what is UNROUTABLE; placet servers says what they take")


@commands.command()
def pause(
    name: QueueName,
    reason: Annotated[str, typer.Option(help="Shown with the queue.")] = "",
    all_tenants: AllTenants = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Let nothing more of a queue begin, until it is resumed.

    What runs goes on, and what is submitted is stored. Pausing again replaces the reason.

    \b
    Examples:
      placet queues pause nightly --reason "the provider is down"
      placet queues pause default --all-tenants
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = client.pause_queue(name, reason=reason, tenant="-" if all_tenants else "")
    _tell(document_of(found), is_json=is_json)


@commands.command()
def resume(
    name: QueueName, all_tenants: AllTenants = False, target: Target = None, is_json: Json = False
) -> None:
    """Take a pause back. It is no error if there is none.

    With --all-tenants the pause that was made for all of them; a tenant's own stays.

    \b
    Examples:
      placet queues resume nightly
      placet queues resume default --all-tenants
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = client.resume_queue(name, tenant="-" if all_tenants else "")
    _tell(document_of(found), is_json=is_json)


def span_text(seconds: float) -> str:
    """The two largest units that it has: 3m 12s, 2d 4h."""
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def _tell(queue: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_document(queue)
        return
    state = "is paused: nothing of it begins" if queue["paused"] else "is not paused"
    reason = f" ({queue['paused_reason']})" if queue["paused_reason"] else ""
    say(
        f"{queue['name']} {state}{reason}; {_count(queue['ready'])} ready, {_count(queue['delayed'])} delayed"
    )


def _row(queue: dict[str, Any]) -> dict[str, str]:
    """By column."""
    oldest = queue["oldest"]
    return {
        "QUEUE": queue["name"],
        "READY": _count(queue["ready"]),
        "DELAYED": _count(queue["delayed"]),
        "OLDEST": "" if oldest is None else span_text(oldest),
        "BEGIN/S": _rate(queue["claims_per_second"]),
        "END/S": _rate(queue["settles_per_second"]),
        "UNROUTABLE": _count(queue["unroutable"]),
        "PAUSED": (moment(queue["pause_time"]) or "paused") if queue["paused"] else "",
        "REASON": queue["paused_reason"],
    }


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate else ""


def _count(count: int) -> str:
    return f"{COUNT_MAX}+" if count > COUNT_MAX else str(count)
