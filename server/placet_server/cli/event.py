"""Events of an action, one line each."""

from __future__ import annotations

import json
from typing import Any

from placet.v1.event_pb2 import ActionEvent
from placet_server.cli.document import document_of


def line_of(event: ActionEvent) -> str:
    """Time, sequence, what happened; unescaped."""
    document = document_of(event)
    kind = event.WhichOneof("event")
    name = kind or event.type.removeprefix("placet.action.")
    number = f"#{event.sequence}" if event.sequence else ""
    said = _SAY[kind](document[kind]) if kind in _SAY else ""
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
    return "  ".join(part for part in parts if part)


def _progress(progress: dict[str, Any]) -> str:
    fraction = progress.get("fraction")
    return str(progress["message"]) + ("" if fraction is None else f" ({fraction:.0%})")


def _admission(admitted: dict[str, Any]) -> str:
    text = f"{admitted['capability']} {admitted['version']}, kept {admitted['durability']}"
    if not admitted["queue"]:
        return text
    ready = f", not before {admitted['ready_time'][:23]}" if admitted["ready_time"] else ""
    return f"{text}, in queue {admitted['queue']}{ready}"


def _requeued(requeued: dict[str, Any]) -> str:
    text = f"attempt {requeued['attempt']} stopped ({requeued['cause']}) and may safely be repeated"
    return f"{text}, from {requeued['ready_time'][:23]}" if requeued["ready_time"] else text


def _redriven(redriven: dict[str, Any]) -> str:
    text = f"generation {redriven['generation']}, up to {redriven['attempts']} attempts, by {redriven['requester']}"
    return f"{text}: {redriven['reason']}" if redriven["reason"] else text


_SAY = {
    "admitted": _admission,
    "attempt_started": lambda it: f"attempt {it['attempt']}; output of earlier ones is void",
    "requeued": _requeued,
    "redriven": _redriven,
    "progress": _progress,
    "chunk": _chunk,
    "effect_checkpointed": lambda it: str(it["provider_operation"]),
    "effect_started": lambda it: "from here a stopped attempt may have taken effect",
    "cancel_requested": lambda it: f"by {it['requester']} {it['reason']}".rstrip(),
    "settled": _ending,
    "ambiguous": _ending,
}
