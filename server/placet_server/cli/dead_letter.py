"""`placet dead` and `placet redrive`: what was given up, or failed and was submitted, and trying it again."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import PAGE_SIZE_MAX, AllTenants, Capabilities, Json, Target
from placet_server.cli.output import counted, moment, print_document, print_table, say, warn

if TYPE_CHECKING:
    from placet import Client

REDRIVEN_MAX = 1000

Queue = Annotated[str, typer.Option("--queue", help="Only submitted to this queue.")]
ReasonOfDeath = Annotated[
    str, typer.Option("--reason-of-death", metavar="REASON", help="Only ended so, e.g. RETRY_BUDGET.")
]


def dead(
    capability: Capabilities = None,
    queue: Queue = "",
    reason_of_death: ReasonOfDeath = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 50,
    all_tenants: AllTenants = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Dead letters: actions given up, or failed and submitted.

    Every action whose budget is spent, and those submitted ones that failed. `placet show` tells what happened to one,
    `placet redrive` tries it again.

    \b
    Examples:
      placet dead
      placet dead --queue nightly --reason-of-death QUEUE_DELAY
      placet dead --capability payments.refund --json | jq -r '.actions[].action_id'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        letters = client.dead_letters(
            capabilities=capability or (),
            queue=queue,
            reason=reason_of_death.upper(),
            tenant="-" if all_tenants else "",
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        found = [document_of(action) for action in islice(letters, limit)]
    if is_json:
        print_document({"actions": found})
        return
    columns = ("ACTION", "ENDED", "CAPABILITY", "QUEUE", "REASON", "FAILURE", "TRY")
    print_table(columns, map(_row, found), empty="no dead letters")


def redrive(
    action_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="These; dead letters or not.", show_default=False),
    ] = None,
    capability: Capabilities = None,
    queue: Queue = "",
    reason_of_death: ReasonOfDeath = "",
    limit: Annotated[int, typer.Option(min=1, max=REDRIVEN_MAX, help="At most so many, oldest first.")] = 100,
    attempts: Annotated[
        int, typer.Option(min=0, max=100, help="Tries each may have from here. 0: as its contract says.")
    ] = 0,
    reason: Annotated[str, typer.Option(help="Kept with the event.")] = "",
    look: Annotated[bool, typer.Option("--look", help="Say what would happen, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at the terminal.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Try ended actions again, under their ids and keys.

    Say which: ids, or options that dead letters must match. Never one whose effect is done or not known, and none that
    has not ended. Exit code 0 if all are tried again, 12 if some are refused, 3 if all are.

    \b
    Examples:
      placet redrive 01996f0a-3c4d --reason "the provider is back"
      placet redrive --queue nightly --look
      placet redrive --capability payments.refund --reason-of-death RETRY_BUDGET --limit 1000 --attempts 5
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    is_filter = bool(capability or queue or reason_of_death)
    if bool(action_ids) == is_filter:
        raise Complaint("say which: ids, or some of --capability, --queue and --reason-of-death; not both")
    filters: dict[str, Any] = {
        "capabilities": capability or (),
        "queue": queue,
        "reason_of_death": reason_of_death.upper(),
    }
    with connect(target) as client:
        ids = list(dict.fromkeys(find_action(client, text) for text in action_ids or ()))
        if len(ids) > REDRIVEN_MAX:
            raise Complaint(f"{len(ids)} ids are too many at once; say at most {REDRIVEN_MAX}")
        if is_filter and not (look or yes or is_json) and sys.stdin.isatty():
            # What is asked about is what is done, whatever comes to match meanwhile.
            ids = _asked(client, filters, limit)
            if not ids:
                return ExitCode.SUCCEEDED
            filters = {}
        which: dict[str, Any] = {"action_ids": ids} if ids else {**filters, "count_max": limit}
        results = client.redrive(attempts=attempts, reason=reason, validate_only=look, **which)
        found = [document_of(result) for result in results]
    if is_json:
        print_document({"results": found})
    else:
        _tell(found, look=look)
    return _code_of(found)


def _asked(client: Client, filters: dict[str, Any], limit: int) -> list[str]:
    """The ids, once the person at the terminal has said yes; raises Complaint for a no."""
    seen = client.redrive(validate_only=True, count_max=limit, **filters)
    if not seen:
        say("no dead letters match")
        return []
    count = sum(result.changed for result in seen)
    if not typer.confirm(
        f"{counted(count, 'action')} of {len(seen)} can be tried again. Try them?", err=True
    ):
        raise Complaint("nothing was changed", ExitCode.INTERRUPTED)
    return [result.action_id for result in seen]


def _tell(found: list[dict[str, Any]], *, look: bool) -> None:
    rows = [
        (each["action_id"], each["state"], "" if each["changed"] else _why(each["refused_rule"]))
        for each in found
    ]
    print_table(("ACTION", "STATE", "REFUSED"), rows, empty="no dead letters match")
    changed = sum(each["changed"] for each in found)
    if found:
        said = "would be tried again" if look else "tried again"
        refused = f", {len(found) - changed} refused" if changed < len(found) else ""
        warn(f"{counted(changed, 'action')} {said}{refused}" + (": nothing was changed" if look else ""))


def _why(rule: str) -> str:
    return _RULES.get(rule, rule)


def _code_of(found: list[dict[str, Any]]) -> ExitCode:
    changed = sum(each["changed"] for each in found)
    if changed == len(found):
        return ExitCode.SUCCEEDED
    if changed:
        return ExitCode.CONFLICT
    return (
        ExitCode.NOT_FOUND if all(each["refused_rule"] == "not_found" for each in found) else ExitCode.REFUSED
    )


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    outcome = found["outcome"] or {}
    return (
        found["action_id"],
        moment(found["settle_time"]),
        found["capability"],
        found["queue"],
        outcome.get("reason", ""),
        outcome.get("failure_code", ""),
        f"{found['attempt']} of {found['attempts_max']}",
    )


_RULES = {
    "not_found": "there is no such action",
    "not_terminal": "it has not ended",
    "not_allowed": "people or policy said no: ask anew, with a new key",
    "effect_done": "its effect is done",
    "effect_ambiguous": "its effect is not known",
    "child": "an action called it; redrive that one",
    "child_ambiguous": "the effect of one that it called is not known",
    "session_went_on": "its session has gone on without it, or is closed; begin another run",
    "budget_spent": "it has spent what a run of it may; begin another one",
    "key_taken": "its key belongs to a later action",
    "moved": "it changed at this moment; look again",
}
