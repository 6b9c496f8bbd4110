"""What the model is told of how a call ended. Each kind of ending has words of its own, none is told as another.

The words have no ids of ours and no times: what a model is told must not tell two equal runs apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, assert_never

from placet_server.core.execution.child import ChildEnd
from placet_server.harness.delegate import words_of
from placet_server.harness.plan import Plan, PlannedCall
from placet_server.harness.provider.answer import ResultPart
from placet_server.model.gate_errors import HandlerNotFound
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind
from placet_server.model.redaction import hidden_text

# All results of a turn stand in one entry, with what else it has.
RESULTS_BYTES_MAX = 2 * 2**20

ToldAs = Literal["success", "failed", "denied", "interrupted"]


def results_of(
    plan: Plan,
    ends: Mapping[int, ChildEnd],
    *,
    sees_sensitive: bool,
    bytes_max: int = RESULTS_BYTES_MAX,
) -> tuple[ResultPart, ...]:
    """Exactly one for each call of the plan, in its order. `ends`: of each call that was made, by its number.
    `sees_sensitive`: whether the caller of the run may see what contracts call sensitive; what he may not, no model is
    told for him. `bytes_max`: of all together.

    Raises KeyError if a call that was to be made has no end: nothing is told of a turn that is not over.
    """
    told: dict[int, ResultPart] = {}
    for call in plan.calls:
        if call.alias_of is not None:
            same = told[call.alias_of]
            told[call.call] = replace(same, call=call.call, id=call.provider_id, tool=call.alias)
        elif call.step:
            told[call.call] = render(call, ends[call.call], sees_sensitive=sees_sensitive)
        else:
            told[call.call] = _part(call, call.refusal, "failed")
    return _bounded(tuple(told[call.call] for call in plan.calls), bytes_max)


def render(call: PlannedCall, end: ChildEnd, *, sees_sensitive: bool) -> ResultPart:
    tool, output = call.tool, end.output_json
    if output and tool is not None:
        if tool.sensitive and not sees_sensitive:
            output = hidden_text(json.loads(output), tool.sensitive)[0]
        if tool.delegate:
            output = words_of(output)
        end = end._replace(output_json=output)
    text, outcome = _told(end)
    return _part(call, text, outcome)


def _part(call: PlannedCall, text: str, outcome: ToldAs) -> ResultPart:
    return ResultPart(call=call.call, id=call.provider_id, tool=call.alias, text=text, outcome=outcome)


def _told(end: ChildEnd) -> tuple[str, ToldAs]:
    outcome = end.outcome
    match outcome.kind:
        case OutcomeKind.SUCCEEDED:
            return end.output_json or "null", "success"
        case OutcomeKind.FAILED:
            code = outcome.failure_code or outcome.reason or "failed"
            return _joined(f"Failed ({code}).", outcome), "failed"
        case OutcomeKind.DENIED:
            return _denied(outcome), "denied"
        case OutcomeKind.REFUSED if outcome.reason == HandlerNotFound.reason:
            # Its message is for who runs servers.
            return f"Refused ({outcome.reason}). Nothing can run it now. Nothing was done.", "failed"
        case OutcomeKind.REFUSED:
            return _joined(f"Refused ({outcome.reason or 'by a rule'}).", outcome), "failed"
        case OutcomeKind.CANCELLED:
            return _joined("Cancelled before it was complete.", outcome), "interrupted"
        case OutcomeKind.EXHAUSTED:
            return _joined(
                f"Given up: its budget is spent ({outcome.reason or 'unknown'}).", outcome
            ), "failed"
        case OutcomeKind.AMBIGUOUS:
            return (
                "Not known: it may have happened, or not. Do not repeat it. People are told, and will find out.",
                "interrupted",
            )
        case OutcomeKind.WAITING:
            return "Not over: it waits for people. Do not repeat it.", "interrupted"
        case OutcomeKind.PENDING:
            return "Not over: it is still running. Do not repeat it.", "interrupted"
        case _:
            assert_never(outcome.kind)


def _denied(outcome: Outcome) -> str:
    """In its own words, and those of who decided are quoted: they are no words of ours."""
    what = _DENIED.get(outcome.reason or "", "people did not allow it")
    said = f" Why: {json.dumps(outcome.message, ensure_ascii=False)}." if outcome.message else ""
    return f"Denied: {what}.{said} {_effect(outcome.effect)}".rstrip()


_DENIED = {
    "APPROVAL_DENIED": "a person said no",
    "APPROVAL_EXPIRED": "nobody said yes in time",
    "APPROVAL_REVOKED": "a person took a yes back",
}


def _joined(what: str, outcome: Outcome) -> str:
    return " ".join(text for text in (what, outcome.message, _effect(outcome.effect)) if text)


def _effect(effect: EffectState | None) -> str:
    match effect:
        case None:
            return ""
        case EffectState.NOT_DONE:
            return "Nothing was done."
        case EffectState.DONE:
            return "Its effect happened nevertheless."
        case EffectState.UNKNOWN:
            return "Whether its effect happened is not known. Do not repeat it."
        case _:
            assert_never(effect)


def _bounded(parts: Sequence[ResultPart], bytes_max: int) -> tuple[ResultPart, ...]:
    """What has more than its share of the whole is told by its size, if all together are too much: as it is stored, a
    text in a JSON document.
    """
    sizes = [_stored_bytes(part.text) for part in parts]
    if sum(sizes) <= bytes_max:
        return tuple(parts)
    share = bytes_max // len(parts)
    return tuple(
        _shortened(part, share) if size > share else part for part, size in zip(parts, sizes, strict=True)
    )


def _shortened(part: ResultPart, share: int) -> ResultPart:
    if part.outcome == "success":
        size = len(part.text.encode())
        return replace(part, text=f"It succeeded, but what it gave has {size} bytes, too many to be shown.")
    # A character has at most six bytes as it is stored.
    return replace(part, text=part.text[: share // 6])


def _stored_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())
