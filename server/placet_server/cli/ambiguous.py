"""`placet ambiguous` and `placet resolve`: effects that may have happened, and what a person found out."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.action import print_action
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import (
    PAGE_SIZE_MAX,
    ActionId,
    AllTenants,
    Capabilities,
    Json,
    Target,
    payload_of,
)
from placet_server.cli.output import moment, print_document, print_facts, print_table, warn

if TYPE_CHECKING:
    from placet import Client
    from placet.recovery_requests import VerdictWord

_VERDICTS: dict[str, VerdictWord] = {"done": "done", "not-done": "not_done"}


def ambiguous(
    capability: Capabilities = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, oldest first.")] = 50,
    all_tenants: AllTenants = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Effects that may have happened, oldest first.

    Nothing acts on them any more. Where LOOKED UP says "again", a lookup ends it by itself; else find out at the
    provider, then `placet resolve`. OPERATION is what the handler noted for that; where it noted nothing, ask for the
    effect key: placet- and the action's id. LOST ATTEMPT says whether it may still act, and answer by itself.

    \b
    Examples:
      placet ambiguous
      placet ambiguous --capability payments.charge --limit 10
      placet ambiguous --all-tenants --json | jq -r '.effects[].action.action_id'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        effects = client.ambiguous(
            capabilities=capability or (),
            tenant="-" if all_tenants else "",
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        found = [document_of(effect) for effect in islice(effects, limit)]
    if is_json:
        print_document({"effects": found})
        return
    columns = ("ACTION", "SINCE", "CAPABILITY", "TRY", "OPERATION", "LOST ATTEMPT", "KEY", "LOOKED UP")
    print_table(columns, map(_row, found), empty="nothing is ambiguous")
    if any(each["asked"] and each["next_time"] is not None for each in found):
        warn("where a lookup is asked it ends by itself; at once: placet reconcile ID")
    if found:
        warn("find out at the provider, then: placet resolve ID done|not-done --reason … --evidence …")


def resolve(
    action_id: ActionId,
    verdict: Annotated[
        str, typer.Argument(metavar="done|not-done", help="What became of its effect, for certain.")
    ],
    reason: Annotated[str, typer.Option(help="Why you say so, in words; kept with the event.")],
    evidence: Annotated[
        str, typer.Option(help="Where the proof is: a ticket, the provider's record; kept with the event.")
    ],
    output: Annotated[
        str,
        typer.Option(
            metavar="JSON|@FILE|-", help="done: what the handler would have returned. Default: null."
        ),
    ] = "",
    attempt: Annotated[
        int, typer.Option(min=0, help="Only if this is still its attempt. 0: whichever it is.")
    ] = 0,
    look: Annotated[bool, typer.Option("--look", help="Check everything, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at the terminal.")] = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Say what became of the effect of an AMBIGUOUS action.

    done: it happened; the action is SUCCEEDED, with the output that you give. not-done: it did not, and will not; the
    action is FAILED (not_done), or CANCELLED if somebody asked for that. Nobody can take a verdict back. not-done is
    refused while the lost attempt may still act.

    \b
    Examples:
      placet resolve 01996f0a-3c4d not-done --reason "no such charge" --evidence "provider search, TICKET-12"
      placet resolve 01996f0a-3c4d done --output '{"charge": "ch_1"}' --reason "it is there" --evidence ch_1 --look
      placet resolve 01996f0a-3c4d done --output @charge.json --reason "it is there" --evidence ch_1 --yes
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    said = _VERDICTS.get(verdict.lower().replace("_", "-"))
    if said is None:
        raise Complaint(f"the verdict is {verdict!r}; say done or not-done")
    if said == "not_done" and output:
        raise Complaint("--output is of what was done; not-done has none")
    if not reason.strip() or not evidence.strip():
        raise Complaint("--reason and --evidence must say something: they are what others will rely on")
    payload = payload_of(output) if output else None
    is_asked = not (look or yes or is_json) and output != "-" and sys.stdin.isatty()
    with connect(target) as client:
        full_id = find_action(client, action_id)
        if is_asked:
            # The attempt that is shown is the one that is judged.
            attempt = _asked(client, full_id, said, attempt, reason, evidence)
        action = client.resolve_ambiguous(
            full_id,
            said,
            reason=reason,
            evidence=evidence,
            output=payload,
            expected_attempt=attempt,
            validate_only=look,
        )
    found = document_of(action)
    if is_json:
        print_document({"action": found, "changed": not look})
        return ExitCode.SUCCEEDED
    print_action(found)
    if look:
        warn(f"it would be resolved as {verdict}: nothing was changed")
    return ExitCode.SUCCEEDED


def _asked(
    client: Client, action_id: str, verdict: VerdictWord, attempt: int, reason: str, evidence: str
) -> int:
    """The attempt, once the person at the terminal has said yes; raises Complaint for a no."""
    action = client.get(action_id)
    facts = (
        ("action", action_id),
        ("capability", f"{action.capability} {action.version}"),
        ("input", action.input_json),
        ("provider operation", action.provider_operation),
        ("attempt", str(action.attempt)),
        ("reason", reason),
        ("evidence", evidence),
    )
    print_facts(facts)
    what = "happened: SUCCEEDED" if verdict == "done" else "did not happen, and will not: FAILED"
    if not typer.confirm(f"Its effect {what}. Nobody can take this back. Is it so?", err=True):
        raise Complaint("nothing was changed", ExitCode.INTERRUPTED)
    return attempt or action.attempt


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    action = found["action"]
    return (
        action["action_id"],
        moment(found["since_time"]),
        action["capability"],
        str(action["attempt"]),
        action["provider_operation"],
        "may act" if found["attempt_may_act"] else "over",
        action["idempotency_key"],
        _looked_up(found),
    )


def _looked_up(found: dict[str, Any]) -> str:
    """How often, and whether again."""
    if found["finding"] == "no_lookup":
        return "no lookup"
    if not found["asked"]:
        return ""
    again = "" if found["next_time"] is None else ", again"
    said = f" ({found['finding']})" if found["finding"] else ""
    return f"{found['asked']} times{again}{said}"
