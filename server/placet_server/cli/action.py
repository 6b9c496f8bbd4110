"""`placet ls` and `show`: actions that exist."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.ask import cost_text, spent_line, turn_line
from placet_server.cli.complaint import Complaint
from placet_server.cli.escape import escape
from placet_server.cli.option import PAGE_SIZE_MAX, Capabilities, Json, Labels, Target, labels_of, moment_of
from placet_server.cli.output import moment, pretty_json, print_document, print_facts, print_table, say, warn

if TYPE_CHECKING:
    from placet import Client
    from placet.v1.event_pb2 import ActionEvent
    from placet.v1.runtime_service_pb2 import Turn

HISTORY_SECONDS = 5.0
CHILDREN_MAX = 100
TURNS_MAX = 100


def ls(
    state: Annotated[
        list[str] | None, typer.Option(help="Only in this state, e.g. ambiguous; may be given again.")
    ] = None,
    capability: Capabilities = None,
    requester: Annotated[str, typer.Option(help="Only asked for by this subject.")] = "",
    queue: Annotated[str, typer.Option(help="Only submitted to this queue.")] = "",
    label: Labels = None,
    parent: Annotated[
        str, typer.Option(metavar="ACTION", help="Only what this one called, in no order of time.")
    ] = "",
    since: Annotated[str, typer.Option(help="Only created since: 2h, or 2030-01-31T12:00:00Z.")] = "",
    agents: Annotated[
        bool, typer.Option("--agents", help="Only runs of agents, with what they have spent.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 50,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Actions, newest first.

    With --agents runs of agents alone: their turns, the tokens that they took, in and out together, and what these cost
    by the operator's price list. `placet capabilities --agents` lists the agents themselves.

    \b
    Examples:
      placet ls
      placet ls --agents --state waiting
      placet ls --state ambiguous --since 24h
      placet ls --parent 01996f0a-3c4d
      placet ls --capability payments.refund --label team=billing --limit 5 --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    with connect(target) as client:
        actions = client.list(
            parent_id=find_action(client, parent) if parent else "",
            states=states_of(state or []),
            capabilities=capability or (),
            requester=requester,
            queue=queue,
            agent_runs=agents,
            labels=labels_of(label),
            create_time_min=moment_of(since, "--since") if since else None,
            page_size=min(limit, PAGE_SIZE_MAX),
        )
        found = [document_of(action) for action in islice(actions, limit)]
    if is_json:
        print_document({"actions": found})
        return
    if agents:
        columns: tuple[str, ...] = ("RUN", "CREATED", "AGENT", "STATE", "TURNS", "TOKENS", "COST")
        print_table(columns, map(_run_row, found), empty="no such runs")
        warn("the agents themselves: placet capabilities --agents")
        return
    columns = ("ACTION", "CREATED", "CAPABILITY", "STATE", "EFFECT", "TRY", "KEY")
    print_table(columns, map(_row, found), empty="no such actions")


def show(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Of an action or an approval, or a unique beginning of it.")
    ],
    events: Annotated[bool, typer.Option("--events", help="With what happened, in order.")] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="All that it has called, and turns of runs: when, how long, at what cost."
        ),
    ] = False,
    target: Target = None,
    is_json: Json = False,
) -> None:
    """One action, what became of its effect, and what it has called; or one approval, and what exactly would run.

    \b
    Examples:
      placet show 01996f0a-3c4d
      placet show 01996f0a-3c4d --events
      placet show 01996f0a-3c4d --tree
      placet show 01996f0a-3c4d --json
    """
    from placet_server.cli.approval_id import find_either
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect
    from placet_server.cli.wait import wait_lines

    if tree and events:
        raise Complaint("say --tree or --events")
    with connect(target) as client:
        which = find_either(client, id_)
        if not which.is_action:
            _show_approval(client, which.approval_id, events=events or tree, is_json=is_json)
            return
        found = document_of(client.get(which.action_id))
        if tree:
            _show_tree(client, found, is_json=is_json)
            return
        children = _children(client, found["action_id"])
        turns = [document_of(turn) for turn in _turns(client, found)]
        history = _history(client, found["action_id"]) if events else []
    if is_json:
        told = {**found, "children": children, "turns": turns}
        print_document({**told, "events": [document_of(event) for event in history]} if events else told)
        return
    print_action(found)
    for line in wait_lines((found["outcome"] or {}).get("waits", ())):
        say(line)
    for turn in turns:
        say(escape(turn_line(turn)))
    for child in children:
        said = f"called  {child['step_path']}  {child['action_id']}  {child['capability']}  {child['state']}"
        say(escape(said))
    if events:
        from placet_server.cli.event import line_of

        say("\nevents")
        for event in history:
            say(escape(f"  {line_of(event)}"))


def _show_tree(client: Client, found: dict[str, Any], *, is_json: bool) -> None:
    from placet_server.cli.tree import print_tree, tree_of
    from placet_server.cli.wait import wait_lines

    grown = tree_of(client, found)
    if is_json:
        print_document(grown)
        return
    print_tree(grown)
    for line in wait_lines((found["outcome"] or {}).get("waits", ())):
        say(line)


def _show_approval(client: Client, approval_id: str, *, events: bool, is_json: bool) -> None:
    from placet_server.cli.answer import print_question
    from placet_server.cli.approval import look_at, print_approval

    if events:
        raise Complaint("--events and --tree are of actions; this is an approval")
    found = look_at(client, approval_id)
    if is_json:
        print_document(found)
        return
    is_question = found["kind"] == "INPUT"
    print_question(found) if is_question else print_approval(found)
    if found["state"] == "PENDING" and (found["eligibility"] or {}).get("eligible"):
        verb = "answer" if is_question else "approve"
        warn(f"to decide it: placet {verb} {approval_id}, or placet deny {approval_id} --reason …")


def through_of(caller: dict[str, Any]) -> str:
    """Who acts for it, the nearest first."""
    return ", for ".join(delegate["subject"] for delegate in caller.get("delegation", ()))


def print_action(found: dict[str, Any]) -> None:
    """An action's document, for people."""
    outcome, requester = found["outcome"] or {}, found["requester"] or {}
    facts = [
        ("action", found["action_id"]),
        ("capability", f"{found['capability']} {found['version']}"),
        ("state", found["state"]),
        ("reason", outcome.get("reason", "")),
        ("message", outcome.get("message", "")),
        ("failure code", outcome.get("failure_code", "")),
        ("effect", outcome.get("effect", "")),
        ("retry advice", outcome.get("retry_advice", "") if found["state"] != "SUCCEEDED" else ""),
        ("attempt", f"{found['attempt']} of {found['attempts_max'] or '?'}"),
        ("generation", str(found["generation"]) if found["generation"] > 1 else ""),
        ("queue", found["queue"] and f"{found['queue']}, priority {found['priority']}"),
        ("key", found["idempotency_key"]),
        ("requester", requester.get("subject", "")),
        ("through", through_of(requester)),
        ("labels", ", ".join(f"{name}={value}" for name, value in found["labels"].items())),
        ("created", found["create_time"] or ""),
        ("not before", (found["ready_time"] or "") if found["state"] == "QUEUED" else ""),
        ("settled", found["settle_time"] or ""),
        ("cancel asked", found["cancel_requested_time"] or ""),
        ("provider operation", found["provider_operation"]),
        ("keeps", found["durability"]),
        ("approval", found["approval_id"]),
        ("spent", spent_line(found["usage"])),
        ("predecessor", found["predecessor_id"]),
        ("called by", found["parent_id"] and f"{found['parent_id']}, step {found['step_path']}"),
        ("receipt", found["receipt_digest"]),
    ]
    print_facts(facts)
    for what in ("input", "output"):
        if found[what] is not None:
            say(f"{what}  {pretty_json(found[what])}")


def states_of(words: list[str]) -> list[str]:
    """Raises Complaint for what is no state."""
    from placet.v1.action_pb2 import ActionState
    from placet_server.cli.document import word

    known = [word(ActionState.DESCRIPTOR, number) for number in ActionState.values() if number]
    for said in words:
        if said.upper() not in known:
            raise Complaint(f"--state is {said!r}; say one of {', '.join(known).lower()}")
    return words


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    outcome = found["outcome"] or {}
    return (
        found["action_id"],
        moment(found["create_time"]),
        found["capability"],
        found["state"],
        outcome.get("effect", ""),
        str(found["attempt"]),
        found["idempotency_key"],
    )


def _run_row(found: dict[str, Any]) -> tuple[str, ...]:
    """One that has not begun has spent nothing."""
    usage = found["usage"]
    spent = ("", "", "")
    if usage is not None:
        tokens = usage["input_tokens"] + usage["output_tokens"]
        spent = (str(usage["turns"]), str(tokens), cost_text(usage))
    return (
        found["action_id"],
        moment(found["create_time"]),
        found["capability"],
        found["state"],
        *spent,
    )


def _children(client: Client, action_id: str) -> list[dict[str, Any]]:
    """In the order in which they were called; of very many, some."""
    from placet_server.cli.document import document_of

    called = client.list(parent_id=action_id, page_size=CHILDREN_MAX)
    found = [document_of(child) for child in islice(called, CHILDREN_MAX)]
    return sorted(found, key=lambda child: (child["create_time"], child["step_path"]))


def _turns(client: Client, found: dict[str, Any]) -> Iterable[Turn]:
    """Of a run, as many as are looked at; of everything else none."""
    return () if found["usage"] is None else islice(client.turns(found["action_id"]), TURNS_MAX)


def _history(client: Client, action_id: str) -> list[ActionEvent]:
    """What is stored now: of an action that goes on, all up to the first live event or a moment without one."""
    from placet.errors import TransportError

    events: list[ActionEvent] = []
    try:
        with client.watch(action_id, timeout=HISTORY_SECONDS) as stream:
            for event in stream:
                if not event.replayed:
                    break
                events.append(event)
    except TransportError as error:
        if error.code != "DEADLINE_EXCEEDED":
            raise
    return events
