"""`placet policy`: what may happen."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from placet_server.cli.exit_code import ExitCode
from placet_server.cli.explain import decision_word
from placet_server.cli.option import Json, Target, moment_of
from placet_server.cli.output import counted, moment, print_document, print_table, say, warn
from placet_server.cli.policy_file import policy_set_of

CHANGES_MAX = 10_000

commands = typer.Typer(
    help="""What may happen: the policies in force, and changing them.

    \b
    Examples:
      placet policy get > policies.cedar
      placet policy validate policies.cedar
      placet policy dry-run policies.cedar --since 7d
      placet policy admit policies.cedar
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[str, typer.Argument(metavar="FILE", help="Cedar text; - for stdin.")]
Name = Annotated[
    str, typer.Option(help="Of the set. Default: the file's name.", show_default=False, metavar="NAME")
]
Overlays = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="What is added to contracts: a JSON array of objects with pattern, hazards and approval.",
        show_default=False,
    ),
]
Operator = Annotated[
    bool, typer.Option("--operator", help="The operator's set, asked first for every tenant.")
]
Digest = Annotated[str, typer.Option(metavar="HEX", help="Only if this set is the one that is replaced.")]


@commands.command()
def validate(
    file: File,
    name: Name = "",
    overlays: Overlays = "",
    operator: Operator = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Everything that is wrong with a policy set. Changes nothing.

    \b
    Examples:
      placet policy validate policies.cedar
      placet policy validate policies.cedar --overlays overlays.json --json | jq .problems
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    wanted = policy_set_of(file, name, overlays)
    with connect(target) as client:
        found = document_of(client.validate_policy_set(wanted, tenant=_owner(operator)))
    refused = _report(found["problems"], {"digest": found["digest"]}, is_json=is_json)
    if not is_json and not refused:
        say(f"nothing is wrong with it, digest {found['digest']}")
    return ExitCode.REFUSED if refused else ExitCode.SUCCEEDED


@commands.command("dry-run")
def dry_run(
    file: File,
    name: Name = "",
    overlays: Overlays = "",
    capability: Annotated[
        list[str] | None, typer.Option(help="Only actions of this one; may be given again.")
    ] = None,
    since: Annotated[str, typer.Option(help="Only actions since then: a span such as 7d, or a time.")] = "1d",
    limit: Annotated[int, typer.Option(min=1, max=CHANGES_MAX, help="Stop after so many changes.")] = 100,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Recorded actions that a policy set would decide otherwise than they were. Changes nothing.

    \b
    Examples:
      placet policy dry-run policies.cedar
      placet policy dry-run policies.cedar --since 30d --capability payments.refund --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    wanted = policy_set_of(file, name, overlays)
    with connect(target) as client:
        changes = client.dry_run_policy_set(
            wanted, capabilities=capability or (), create_time_min=moment_of(since, "--since")
        )
        found = [document_of(change) for change in islice(changes, limit)]
    if is_json:
        print_document({"changes": found})
        return
    columns = ("ACTION", "CREATED", "CAPABILITY", "REQUESTER", "WAS", "WOULD BE", "BY")
    print_table(columns, map(_change_row, found), empty="nothing would have been decided otherwise")


@commands.command()
def admit(
    file: File,
    name: Name = "",
    overlays: Overlays = "",
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Report every problem and change nothing.")
    ] = False,
    expected_digest: Digest = "",
    operator: Operator = False,
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Put a policy set in force, whole or not at all.

    \b
    Examples:
      placet policy admit policies.cedar --validate-only
      placet policy admit policies.cedar --expected-digest "$DIGEST"
      placet policy admit limits.cedar --operator --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    wanted = policy_set_of(file, name, overlays)
    with connect(target) as client:
        answer = client.admit_policy_set(
            wanted, validate_only=validate_only, expected_digest=expected_digest, tenant=_owner(operator)
        )
    found = document_of(answer)
    more = {name: found[name] for name in ("revision", "digest", "changed")}
    refused = _report(found["problems"], more, is_json=is_json)
    if not is_json and not refused:
        ended = "would be admitted" if validate_only else f"is in force as revision {answer.revision}"
        unchanged = "" if answer.changed or validate_only else ", and was already"
        say(f"{wanted.name} {ended}{unchanged}, digest {answer.digest}")
    return ExitCode.REFUSED if refused else ExitCode.SUCCEEDED


@commands.command()
def rollback(
    revision: Annotated[
        int, typer.Argument(min=0, metavar="REVISION", help="The one to go back to; 0: the built-in one.")
    ],
    expected_digest: Digest = "",
    operator: Operator = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Put an older revision in force again, as a new one.

    \b
    Examples:
      placet policy rollback 3
      placet policy rollback 0 --expected-digest "$DIGEST" --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        answer = client.roll_back_policy_set(
            revision, expected_digest=expected_digest, tenant=_owner(operator)
        )
    if is_json:
        print_document(document_of(answer))
        return
    word = "is in force" if answer.changed else "was in force already"
    say(f"what revision {revision} says {word}, as revision {answer.revision}, digest {answer.digest}")


@commands.command()
def get(
    revision: Annotated[
        int | None,
        typer.Argument(
            min=0, metavar="REVISION", help="This one; 0: the built-in one. Default: what is in force."
        ),
    ] = None,
    operator: Operator = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """The Cedar text of a policy set on stdout; what it is, on stderr.

    \b
    Examples:
      placet policy get
      placet policy get 3 > policies.cedar
      placet policy get --json | jq -r .revision.digest
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = document_of(client.policy_set(revision, tenant=_owner(operator)))
    if is_json:
        print_document(found)
        return
    is_, said = found["revision"], found["policy_set"]
    warn(f"{said['name']}, revision {is_['revision']}, digest {is_['digest']}")
    for overlay in said["overlays"]:
        added = [f"hazards {', '.join(overlay['hazards'])}"] if overlay["hazards"] else []
        added += [f"approval {overlay['approval']}"] if overlay["approval"] else []
        warn(f"overlay {overlay['pattern']}: {'; '.join(added)}")
    say(said["cedar"].rstrip("\n"))


@commands.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many, newest first.")] = 50,
    operator: Operator = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Revisions, newest first; the first is in force.

    \b
    Examples:
      placet policy list
      placet policy list --operator --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = [document_of(each) for each in islice(client.policy_sets(tenant=_owner(operator)), limit)]
    if is_json:
        print_document({"revisions": found})
        return
    columns = ("REVISION", "ADMITTED", "NAME", "POLICIES", "BY", "RESTORES", "DIGEST")
    nothing = "none was ever admitted" + ("" if operator else ": the built-in policies are in force")
    print_table(columns, map(_revision_row, found), empty=nothing)


def _owner(operator: bool) -> str:
    return "-" if operator else ""


def _report(problems: list[dict[str, Any]], more: dict[str, Any], *, is_json: bool) -> bool:
    """Whether there are any."""
    if is_json:
        print_document({**more, "ok": not problems, "problems": problems})
        return bool(problems)
    for problem in problems:
        warn(f"{problem['path']}  {problem['code']}: {problem['message']}")
    if problems:
        warn(counted(len(problems), "problem"))
    return bool(problems)


def _change_row(change: dict[str, Any]) -> tuple[str, ...]:
    after = change["after"]
    return (
        change["action_id"],
        moment(change["create_time"]),
        change["capability"],
        change["requester"],
        decision_word(change["before"]) if change["before"] else "not decided",
        decision_word(after),
        ", ".join(policy["name"] for policy in after["policies"]),
    )


def _revision_row(found: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(found["revision"]),
        moment(found["create_time"]),
        found["name"],
        str(found["policy_count"]),
        found["admitted_by"],
        str(found["restores"] or ""),
        found["digest"][:12],
    )
