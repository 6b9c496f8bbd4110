"""`placet recover` and `placet reconcile`: what stopped in between, found, done, and told with what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import AllTenants, Json, Target
from placet_server.cli.output import print_document, print_table, say, warn

if TYPE_CHECKING:
    from placet.recovery_requests import FamilyWord

ASKED_MAX = 1000
_FAMILIES: dict[str, FamilyWord] = {
    "leases": "leases",
    "queues": "queues",
    "ambiguous": "ambiguous",
    "dead-letters": "dead_letters",
    "approvals": "approvals",
    "callbacks": "callbacks",
}
_COUNTS = ("found", "replayed", "waiting", "ambiguous", "ended")


def recover(
    family: Annotated[
        list[str] | None,
        typer.Option(
            help="Only leases, queues, ambiguous, dead-letters, approvals or callbacks; may be given again."
        ),
    ] = None,
    look: Annotated[bool, typer.Option("--look", help="Only look, and change nothing.")] = False,
    all_tenants: AllTenants = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Have the server do now what it does by itself, and say what there was.

    Actions of dead servers are made ready or ambiguous, what is due gets into line, lookups are asked. Each thing is
    told with its next step; nobody decides anything for you. Safe at any time, and twice at once. The report is kept.

    \b
    Examples:
      placet recover --look
      placet recover
      placet recover --family ambiguous --json | jq -r '.report.sections[].entries[].next_step'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    unknown = [word for word in family or () if word not in _FAMILIES]
    if unknown:
        raise Complaint(f"--family is {unknown[0]!r}; say {', '.join(_FAMILIES)}")
    with connect(target) as client:
        report = client.recover(
            families=[_FAMILIES[word] for word in family or ()],
            tenant="-" if all_tenants else "",
            validate_only=look,
        )
    found = document_of(report)
    if is_json:
        print_document({"report": found})
        return
    rows = [
        (_words(section["family"]), *(str(section[name]) for name in _COUNTS), section["note"])
        for section in found["sections"]
    ]
    print_table(("WHAT", *(name.upper() for name in _COUNTS), "NOTE"), rows, empty="nothing was looked at")
    entries = [entry for section in found["sections"] for entry in section["entries"]]
    if entries:
        say()
        columns = ("ID", "WHAT", "STANDS", "NEXT")
        print_table(columns, map(_entry, entries), empty="")
    warn(f"report {found['report_id']}" + (": nothing was changed" if look else ""))


def reconcile(
    action_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="These.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="The oldest that are ambiguous.")] = False,
    capability: Annotated[
        list[str] | None, typer.Option(help="Those of this capability; may be given again.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=ASKED_MAX, help="At most so many, oldest first.")] = 100,
    look: Annotated[bool, typer.Option("--look", help="Say what would happen, and change nothing.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Have lookups asked now what became of effects.

    Also of those that were given up. Say which: ids, --all or --capability. It does not wait for the answers: `placet
    watch ID` does. Exit code 0 if somebody is asked about each, 12 if not about some, 3 if about none.

    \b
    Examples:
      placet reconcile 01996f0a-3c4d
      placet reconcile --all --look
      placet reconcile --capability payments.charge --limit 1000
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    if bool(action_ids) == bool(all_ or capability):
        raise Complaint("say which: ids, or --all or --capability; not both")
    with connect(target) as client:
        ids = list(dict.fromkeys(find_action(client, text) for text in action_ids or ()))
        which: dict[str, Any] = (
            {"action_ids": ids} if ids else {"capabilities": capability or (), "count_max": limit}
        )
        found = [document_of(each) for each in client.reconcile(validate_only=look, **which)]
    if is_json:
        print_document({"results": found})
    else:
        rows = [
            (each["action_id"], each["state"], _RULES.get(each["refused_rule"], each["refused_rule"]))
            for each in found
        ]
        print_table(("ACTION", "STATE", "REFUSED"), rows, empty="nothing is ambiguous")
        if found:
            asked = sum(each["changed"] for each in found)
            said = "would be asked about" if look else "asked about"
            warn(f"{asked} of {len(found)} {said}" + (": nothing was changed" if look else ""))
    return _code_of(found)


def _code_of(found: list[dict[str, Any]]) -> ExitCode:
    asked = sum(each["changed"] for each in found)
    if asked == len(found):
        return ExitCode.SUCCEEDED
    return ExitCode.CONFLICT if asked else ExitCode.REFUSED


def _entry(entry: dict[str, Any]) -> tuple[str, ...]:
    reason = f" ({entry['reason']})" if entry["reason"] else ""
    return entry["id"], entry["what"], f"{entry['outcome']}{reason}", entry["next_step"]


def _words(family: str) -> str:
    return family.lower().replace("_", " ")


_RULES = {
    "not_found": "there is no such action",
    "not_ambiguous": "its effect is not in doubt",
    "no_lookup": "its tool has no lookup: find out, then placet resolve",
}
