"""`placet explain`: why something may happen, or may not."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from placet_server.cli.option import Json, Target
from placet_server.cli.output import print_document, print_facts, say


def explain(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Of an action, or a beginning of it; or a refusal_id, whole.")
    ],
    target: Target = None,
    is_json: Json = False,
) -> None:
    """Which policies decided about an action, or about a call that they refused.

    \b
    Examples:
      placet explain 01996f0a-3c4d
      placet explain 01996f0a-3c4d-7aaa-8bbb-123456789abc --json
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect, find_action

    with connect(target) as client:
        found = document_of(client.explain(find_action(client, id_)))
    if is_json:
        print_document(found)
        return
    decision = found["decision"]
    print_facts(
        [
            ("action" if found["is_action"] else "refusal", found["id"]),
            ("capability", f"{found['capability']} version {found['version']}"),
            ("requester", found["requester"]),
            ("at", found["create_time"] or ""),
            ("decision", decision_word(decision) if decision else "admitted before there were policies"),
            ("needs", decision["approval"] if decision else ""),
            ("because", _BECAUSE.get(decision["problem"], "") if decision else ""),
        ]
    )
    for policy in decision["policies"] if decision else ():
        say(f"\n{policy['name']}  {policy['digest'][:12]}")
        say(policy["cedar"] or "(no policy that says this is in force any more, or it is not yours to see)")


def decision_word(decision: dict[str, Any]) -> str:
    """For people."""
    if not decision["allowed"]:
        return f"refused ({decision['problem']})"
    return "allowed, once people say yes" if decision["approval"] else "allowed"


_BECAUSE = {
    "forbidden": "these forbid it",
    "not_permitted": "no policy permits it",
    "not_evaluated": "these could not be evaluated, and what cannot be evaluated refuses",
    "asks_too_much": "these ask for more approvals than one request can carry",
    "not_answerable": "one person answers a question, and nobody alone is all whom these ask for",
    "not_readable": "a policy reads a part of the input that Cedar cannot be shown exactly",
}
