"""`placet deliveries`: what receivers are told, and how that went."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import PAGE_SIZE_MAX, AllTenants, Json, Target
from placet_server.cli.output import moment, print_document, print_table, say

if TYPE_CHECKING:
    from placet import Client

# How many of the newest are looked through for the beginning of an id.
LOOKED_AT_MAX = 10_000
_STATES = ("pending", "delivered", "dead")
_ID_LENGTH = 36

DeliveryId = Annotated[
    str, typer.Argument(metavar="ID", help="Delivery id, or a unique beginning of a newer one.")
]

commands = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@commands.callback()
def deliveries() -> None:
    """Deliveries: what receivers are told, and how that went; send again.

    A callback to one target is a delivery. DELIVERED says that the receiver has taken it; DEAD, that nobody tries any
    more. Who is told of what is in the server's PLACET_CALLBACK_FILE.

    \b
    Examples:
      placet deliveries list --state dead
      placet deliveries show 5f0c2a9e
      placet deliveries redeliver 5f0c2a9e
    """


@commands.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option(help="Only pending, delivered or dead; may be given again.")
    ] = None,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="Only to the target of this name.")] = "",
    action: Annotated[str, typer.Option("--action", metavar="ID", help="Only about this action.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 50,
    all_tenants: AllTenants = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Deliveries, newest first.

    \b
    Examples:
      placet deliveries list
      placet deliveries list --to desk --state pending --state dead
      placet deliveries list --state dead --json | jq -r '.deliveries[].delivery_id'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    unknown = [word for word in state or () if word.lower() not in _STATES]
    if unknown:
        raise Complaint(f"--state is {unknown[0]!r}; say {', '.join(_STATES)}")
    with connect(target) as client:
        listed = client.deliveries(
            states=state or (),
            target=to,
            action_id=find_action(client, action) if action else "",
            tenant="-" if all_tenants else "",
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        found = [document_of(each) for each in islice(listed, limit)]
    if is_json:
        print_document({"deliveries": found})
        return
    columns = ["DELIVERY", "CREATED", "TARGET", "TYPE", "SUBJECT", "STATE", "TRIES", "LAST"]
    if all_tenants:
        columns.insert(1, "TENANT")
    print_table(columns, (_row(each, with_tenant=all_tenants) for each in found), empty="no deliveries")


@commands.command()
def show(delivery_id: DeliveryId, target: Target = None, is_json: Json = False) -> None:
    """One delivery, with what is told.

    \b
    Examples:
      placet deliveries show 5f0c2a9e
      placet deliveries show 5f0c2a9e --json | jq .data
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        _tell(document_of(client.delivery(_find(client, delivery_id))), is_json=is_json)


@commands.command()
def redeliver(delivery_id: DeliveryId, target: Target = None, is_json: Json = False) -> None:
    """Send it out again, whatever became of it.

    The receiver gets the same under the same id, so that it may know it already. There are as many attempts as for a
    new one.

    \b
    Examples:
      placet deliveries redeliver 5f0c2a9e
      placet deliveries list --state dead --json | jq -r '.deliveries[].delivery_id' \
        | xargs -n1 placet deliveries redeliver
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        _tell(document_of(client.redeliver(_find(client, delivery_id))), is_json=is_json)


def _find(client: Client, text: str) -> str:
    """Raises Complaint if none of the newest begins so, or several do."""
    wanted = text.strip().lower()
    if len(wanted) == _ID_LENGTH:
        return wanted
    newest = islice(client.deliveries(page_size=PAGE_SIZE_MAX), LOOKED_AT_MAX)
    matches = [each.delivery_id for each in newest if each.delivery_id.startswith(wanted)]
    if not wanted or not matches:
        raise Complaint(f"no delivery begins with {text!r}", ExitCode.NOT_FOUND)
    if len(matches) > 1:
        raise Complaint(f"several deliveries begin with {text!r}; say more of it", kind="PREFIX_AMBIGUOUS")
    return matches[0]


def _tell(found: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_document(found)
        return
    say(f"{found['delivery_id']}  {found['state']}{', being tried now' if found['in_flight'] else ''}")
    facts = {
        "told": f"{found['type']} about {found['subject']}",
        "target": found["target"],
        "action": found["action_id"],
        "created": moment(found["create_time"]),
        "tried": f"{found['attempts']} of {found['attempts_max']}",
        "last": _last(found),
        "next": moment(found["next_time"]),
        "ended": moment(found["end_time"]),
    }
    for name, fact in facts.items():
        if fact:
            say(f"  {name:8} {fact}")
    for name, value in (found["data"] or {}).items():
        say(f"  {name:8} {value}")


def _row(found: dict[str, Any], *, with_tenant: bool) -> tuple[str, ...]:
    return (
        found["delivery_id"],
        *([found["tenant"]] if with_tenant else []),
        moment(found["create_time"]),
        found["target"],
        found["type"].removeprefix("dev.placet."),
        found["subject"],
        found["state"],
        f"{found['attempts']} of {found['attempts_max']}",
        _last(found),
    )


def _last(found: dict[str, Any]) -> str:
    return found["last_error"] or (str(found["last_status"]) if found["last_status"] else "")
