"""An action with all that it has called, and the turns of runs: what was done when, how long it took, what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from placet_server.cli.ask import spent_line, tokens_line
from placet_server.cli.escape import escape
from placet_server.cli.output import say

if TYPE_CHECKING:
    from placet import Client

ROWS_MAX = 200


class _Room:
    """How many rows may still be told."""

    def __init__(self) -> None:
        self.left = ROWS_MAX
        self.is_short = False

    def take(self, rows: Iterator[Any]) -> list[Any]:
        found = list(islice(rows, self.left + 1))
        self.is_short = self.is_short or len(found) > self.left
        found = found[: self.left]
        self.left -= len(found)
        return found


def tree_of(client: Client, found: dict[str, Any]) -> dict[str, Any]:
    """The action's document with `turns`, and `children` that are such documents themselves, in the order in which they
    were called; `is_whole`: nothing was left out.
    """
    room = _Room()
    grown = _grown(client, found, room)
    return {**grown, "is_whole": not room.is_short}


def print_tree(tree: dict[str, Any]) -> None:
    for line in _lines(tree, 0):
        say(escape(line))
    if not tree["is_whole"]:
        say(f"… more than {ROWS_MAX} rows: `placet show` of what is below tells the rest")


def _grown(client: Client, found: dict[str, Any], room: _Room) -> dict[str, Any]:
    from placet_server.cli.document import document_of

    action_id = found["action_id"]
    is_run = found["usage"] is not None
    turns = [document_of(turn) for turn in room.take(client.turns(action_id))] if is_run else []
    called = client.list(parent_id=action_id, page_size=ROWS_MAX)
    children = [document_of(child) for child in room.take(called)]
    children.sort(key=lambda child: (child["create_time"], child["step_path"]))
    return {**found, "turns": turns, "children": [_grown(client, child, room) for child in children]}


def _lines(tree: dict[str, Any], depth: int) -> Iterator[str]:
    facts = [tree["capability"], tree["action_id"], _state(tree), spent_line(tree["usage"]), _span(tree)]
    yield _line(depth, tree["create_time"], facts)
    by_id = {child["action_id"]: child for child in tree["children"]}
    for turn in tree["turns"]:
        yield _line(depth + 1, turn["request_time"], _turn_facts(turn))
        for call in turn["calls"]:
            child = by_id.pop(call["action_id"], None)
            if child is not None:
                yield from _lines(child, depth + 2)
            elif not call["action_id"]:
                yield _line(depth + 2, "", [call["tool"], why_not_made(call)])
    for child in by_id.values():
        yield from _lines(child, depth + 1)


def why_not_made(call: dict[str, Any]) -> str:
    """Of a call that is no action."""
    if call["problem"] == "REFUSED":
        return f"not made: refused, {call['reason']}"
    return _WHY_NOT.get(call["problem"], "not made: the model is told why")


_WHY_NOT = {
    "TOOL_UNKNOWN": "not made: there is no such tool",
    "ARGUMENTS_INVALID": "not made: its arguments do not fit the schema",
    "ARGUMENTS_TOO_LARGE": "not made: its arguments are too large",
    "CALLS_TOO_MANY": "not made: too many calls in one answer",
    "CUT_OFF": "not made: the answer was cut off",
    "ANSWER_FINAL": "not made: the answer was final",
    "TAKEN_AS_ANSWER": "taken as the answer",
    "BUDGET_SPENT": "not made: a bound of the budget is spent",
    "DELEGATES_CYCLE": "not made: agents would ask each other without end",
}


def _line(depth: int, time: str | None, facts: list[str]) -> str:
    return f"{(time or '')[11:19]:<8}  {'  ' * depth}{'  '.join(fact for fact in facts if fact)}"


def _turn_facts(turn: dict[str, Any]) -> list[str]:
    purpose = turn["purpose"] if turn["purpose"] not in ("", "answer") else ""
    asked = f"asked {turn['requests']} times" if turn["requests"] > 1 else ""
    failure = f"no answer: {turn['failure']}" if turn["failure"] else ""
    problem = f"cannot be told whole: {turn['problem']}" if turn["problem"] else ""
    usage = tokens_line(turn["usage"]) if turn["usage"] else ""
    return [
        f"turn {turn['turn']}",
        purpose,
        asked,
        usage,
        failure,
        problem,
        _between(turn, "request_time", "answer_time"),
    ]


def _state(found: dict[str, Any]) -> str:
    outcome = found["outcome"] or {}
    told = (found["state"], outcome.get("reason", ""), outcome.get("failure_code", ""))
    return " ".join(part for part in told if part)


def _span(found: dict[str, Any]) -> str:
    return _between(found, "create_time", "settle_time")


def _between(found: dict[str, Any], begin: str, end: str) -> str:
    if not (found[begin] and found[end]):
        return ""
    return (
        f"{(datetime.fromisoformat(found[end]) - datetime.fromisoformat(found[begin])).total_seconds():.1f} s"
    )
