"""Events of an action, one line each."""

from __future__ import annotations

import json
from typing import Any

from placet.v1.event_pb2 import ActionEvent
from placet_server.cli.approval import verdict_word
from placet_server.cli.document import document_of
from placet_server.cli.output import counted


def line_of(event: ActionEvent) -> str:
    """Time, sequence, what happened; unescaped."""
    document = document_of(event)
    kind = event.WhichOneof("event")
    name = kind or event.type.removeprefix("placet.action.")
    number = f"#{event.sequence}" if event.sequence else ""
    said = _SAY[kind](document[kind]) if kind in _SAY else ""
    if kind == "admitted":
        said += _place(document["admitted"], document["create_time"])
    return f"{(document['create_time'] or '')[:23]:<23}  {number:<4} {name:<19} {said}".rstrip()


def _chunk(chunk: dict[str, Any]) -> str:
    if "text" in chunk:
        return str(chunk["text"])
    return (
        json.dumps(chunk["json"], ensure_ascii=False) if "json" in chunk else f"{len(chunk['binary'])} bytes"
    )


def _ending(settled: dict[str, Any]) -> str:
    outcome = settled["outcome"] or {}
    parts = [outcome.get("kind", ""), outcome.get("reason", "")]
    parts += [f"effect {outcome['effect']}"] if outcome.get("effect") else []
    parts += [outcome.get("failure_code", ""), outcome.get("message", "")]
    if settled.get("output") is not None:
        parts.append(json.dumps(settled["output"], ensure_ascii=False))
    if settled.get("resolution"):
        parts.append(_resolution(settled["resolution"]))
    return "  ".join(part for part in parts if part)


def _resolution(known: dict[str, Any]) -> str:
    return f"{known['verdict']} says {known['requester']}: {known['reason']} ({known['evidence']})"


def _progress(progress: dict[str, Any]) -> str:
    fraction = progress.get("fraction")
    return str(progress["message"]) + ("" if fraction is None else f" ({fraction:.0%})")


def _place(admitted: dict[str, Any], create_time: str | None) -> str:
    if not admitted["queue"]:
        return ""
    ready_time = admitted["ready_time"]
    is_delayed = bool(ready_time) and ready_time != create_time
    return f", in queue {admitted['queue']}" + (f", not before {ready_time[:23]}" if is_delayed else "")


def _requeued(requeued: dict[str, Any]) -> str:
    if requeued["cause"] == "WOKEN":
        return f"a step has ended, so attempt {requeued['attempt']} goes on"
    if requeued["cause"] == "POSTPONED":
        return f"attempt {requeued['attempt']} has put itself off, and goes on later"
    text = f"attempt {requeued['attempt']} stopped ({requeued['cause']}) and may safely be repeated"
    if requeued.get("resolution"):
        text += f"; {_resolution(requeued['resolution'])}"
    return f"{text}, from {requeued['ready_time'][:23]}" if requeued["ready_time"] else text


def _redriven(redriven: dict[str, Any]) -> str:
    more = counted(redriven["attempts"], "attempt")
    text = f"generation {redriven['generation']}, {more} at most, by {redriven['requester']}"
    return f"{text}: {redriven['reason']}" if redriven["reason"] else text


def _waiting(waiting: dict[str, Any]) -> str:
    wait = waiting["wait"] or {}
    again = f", again after {waiting['predecessor_id']}" if waiting["predecessor_id"] else ""
    return f"for {wait.get('kind', '').lower()} {wait.get('approval_id', '')}{again}: {wait.get('title', '')}"


def _decided(decided: dict[str, Any]) -> str:
    said = verdict_word(decided["verdict"])
    text = (
        f"{said} taken back by {decided['voter']}"
        if decided["taken_back"]
        else f"{said} from {decided['voter']}"
    )
    text += f": {decided['reason']}" if decided["reason"] else ""
    return f"{text}; with that it is decided" if decided["completes"] else text


def _started(started: dict[str, Any]) -> str:
    earlier = "; output of earlier ones is void" if started["attempt"] > 1 else ""
    return f"attempt {started['attempt']}{earlier}"


def _try(turn: dict[str, Any]) -> str:
    return f", try {turn['number']}" if turn["number"] > 1 else ""


def _answered(turn: dict[str, Any]) -> str:
    called = ", ".join(call["tool"] for call in turn["calls"])
    return f"turn {turn['turn']} has an answer" + (f", which calls {called}" if called else "")


def _delta(delta: dict[str, Any]) -> str:
    return str(delta["text"]) if "text" in delta else f"(thinks) {delta['reasoning']}"


def _tool_started(called: dict[str, Any]) -> str:
    waits = ", which waits for people" if called["waiting"] else ""
    return f"turn {called['turn']}: {called['tool']} is action {called['action_id']}{waits}"


def _tool_finished(called: dict[str, Any]) -> str:
    outcome = called["outcome"]
    ended = "  ".join(part for part in (outcome["kind"], outcome.get("reason", "")) if part)
    return f"turn {called['turn']}: {called['tool']}  {ended}"


_SAY = {
    "admitted": lambda it: f"{it['capability']} {it['version']}, kept {it['durability']}",
    "attempt_started": _started,
    "parked": lambda it: _parked(it["steps"]),
    "resumed": lambda it: f"attempt {it['attempt']} goes on, from the start of its handler",
    "run_opened": lambda it: f"{it['model']}, with {counted(it['tools'], 'tool')}",
    "turn_requested": lambda it: f"turn {it['turn']}{_try(it)}: {it['model']} is asked",
    "turn_answered": _answered,
    "turn_failed": lambda it: f"turn {it['turn']}{_try(it)}: {it['category']}",
    "compacted": lambda it: f"{counted(it['turns'], 'turn')} in fewer words",
    "requeued": _requeued,
    "redriven": _redriven,
    "reconcile_given_up": lambda it: f"asked {it['asked']} times; an operator's to find out: {it['finding']}",
    "progress": _progress,
    "delta": _delta,
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "chunk": _chunk,
    "waiting": _waiting,
    "approval_decided": _decided,
    "approval_ended": lambda it: f"{it['approval_id']} {it['state']}",
    "effect_checkpointed": lambda it: str(it["provider_operation"]),
    "effect_started": lambda it: "from here a stopped attempt may have taken effect",
    "cancel_requested": lambda it: f"by {it['requester']} {it['reason']}".rstrip(),
    "settled": _ending,
    "ambiguous": _ending,
}


def _parked(steps: int) -> str:
    wanted = counted(steps, "step") if steps else "its turn in its session"
    return f"for {wanted}; nobody runs it meanwhile"
