"""`placet servers`: who is at work on the store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from placet_server.cli.capability import budget_words
from placet_server.cli.option import Json, Target
from placet_server.cli.output import print_document, print_table
from placet_server.cli.queue import span_text

SERVES_SHOWN_MAX = 3
MODELS_SHOWN_MAX = 8


def servers(target: Target = None, is_json: Json = False) -> None:
    """The server processes at work on the store; for operators.

    SLOTS is how many submitted actions a server runs at once, SERVES what it has handlers for. A *draining* server
    begins nothing more and is about to end. A *silent* one was not heard of for longer than its lease: it may be gone,
    and what it ran goes to others. The one marked with * has answered.

    \b
    Examples:
      placet servers
      placet servers --json | jq -r '.servers[] | select(.draining) | .host'
    """
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    with connect(target) as client:
        found = [document_of(server) for server in client.servers()]
    found.sort(key=lambda server: (server["host"], server["start_time"], server["server_id"]))
    if is_json:
        print_document({"servers": found})
        return
    columns = ("SERVER", "HOST", "PID", "VERSION", "UP", "SLOTS", "STATE", "SERVES")
    print_table(columns, map(_row, found), empty="no server")


def agent_facts(server: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a server's document: whether agents can run there, and of which models, which only operators are told."""
    found = server["agents"]
    if found is None:
        return []
    if not found["installed"]:
        return [("agents", "cannot run here: the extra placet[agents] is not installed")]
    bounds = budget_words(found["budget_max"])
    facts = [("agents", f"can run here, at most {bounds} each" if bounds else "can run here")]
    models = found["models"]
    named = [f"{each['name']} ({each['problem']})" if each["problem"] else each["name"] for each in models]
    more = len(named) - MODELS_SHOWN_MAX
    shown = ", ".join(named[:MODELS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    facts.append(("models", shown or "none; only operators are told which there are"))
    return [*facts, *(("not in force", problem) for problem in found["file_problems"])]


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    state = "silent" if server["silent"] else "draining" if server["draining"] else "serving"
    return (
        server["server_id"][:8] + (" *" if server["answering"] else ""),
        server["host"],
        str(server["pid"]),
        server["version"],
        span_text(_seconds_up(server)),
        str(server["queue_slots"]),
        state,
        _serves(server["serves"]),
    )


def _seconds_up(server: dict[str, Any]) -> float:
    """Up to when it was last heard of: both by the store's clock."""
    start, heard = (datetime.fromisoformat(server[name]) for name in ("start_time", "heartbeat_time"))
    return (heard - start).total_seconds()


def _serves(names: list[str]) -> str:
    more = len(names) - SERVES_SHOWN_MAX
    shown = ", ".join(names[:SERVES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
