"""Errors of the SDK for people, and as documents."""

from __future__ import annotations

from typing import Any

from placet.errors import PendingError, PlacetError, TransportError, UnavailableError, WaitingError
from placet_server.cli.wait import wait_lines


def text_of_error(error: PlacetError, *, is_call: bool = True, is_run: bool = False) -> str:
    """What happened, what became of the effect, and what to do next. Only `call` has an effect, and a --key; `is_run`:
    of a run of an agent, or what else is gone on with by its id.
    """
    lines = [str(error)]
    lines += [f"  {line}" for line in violations_of(error)]
    lines += [f"  {note}" for note in getattr(error, "__notes__", ())]
    if error.failure_code:
        lines.append(f"  failure code  {error.failure_code}")
    if error.action_id:
        lines.append(f"  action        {error.action_id}")
    if error.effect and (is_call or error.action_id):
        lines.append(f"  effect        {error.effect}: {_EFFECTS[error.effect]}")
    lines += [f"  {line}" for line in wait_lines(waits_of(error))]
    lines.append(f"  next          {advice_of(error, is_call=is_call, is_run=is_run)}")
    return "\n".join(lines)


def violations_of(error: PlacetError) -> list[str]:
    """Those that its message does not tell already."""
    return [
        f"{each.field or '(input)'}: {each.description}"
        for each in error.violations
        if f"{each.field or '/'}: {each.description}" not in error.message
    ]


def waits_of(error: PlacetError) -> list[dict[str, Any]]:
    """What its action waits for, as documents."""
    from placet_server.cli.document import document_of

    return [] if error.outcome is None else [document_of(wait) for wait in error.outcome.waits]


def advice_of(error: PlacetError, *, is_call: bool = True, is_run: bool = False) -> str:
    """Retry advice as a sentence."""
    # Also of one whose answer was too late, or was lost: it is stored.
    still_runs = isinstance(error, PendingError | WaitingError | TransportError)
    if is_run and error.action_id and still_runs:
        return f"it goes on without you: placet resume {error.action_id}"
    if isinstance(error, TransportError | UnavailableError) and not error.action_id:
        again = "The same request with the same --key may be sent again" if is_call else "Ask again"
        return f"is the server running? {again} at any time"
    for code in (error.failure_code, *(each.rule for each in error.violations)):
        if code in _FAILURES:
            return _FAILURES[code]
    if error.reason == "AGENT_UNAVAILABLE":
        agent, problem = error.metadata.get("agent", "NAME"), error.metadata.get("problem", "")
        return _UNAVAILABLE.get(problem, _MODEL_MISSING).format(agent=agent)
    if error.reason in _REASONS:
        early = error.metadata.get("rule") == "attempt_may_act"
        return _TOO_EARLY if early else _REASONS[error.reason]
    advice = _ADVICE.get(error.retry_advice, error.retry_advice)
    if error.retry_advice == "NEW_KEY" and error.action_id and error.effect != "DONE":
        advice += ", or an operator's `placet redrive`"
    delay = error.retry_delay_seconds
    return f"{advice} (after {delay:g} s)" if delay else advice


def document_of_error(error: PlacetError) -> dict[str, Any]:
    """As --json prints it."""
    outcome = error.outcome
    return {
        "kind": kind_of(error),
        "reason": error.reason,
        "code": error.code,
        "message": error.message,
        "action_id": error.action_id,
        "attempt": outcome.attempt if outcome is not None else 0,
        "effect": error.effect,
        "retry_advice": error.retry_advice,
        "retry_delay": error.retry_delay_seconds,
        "failure_code": error.failure_code,
        "metadata": dict(error.metadata),
        "violations": [
            {"field": each.field, "rule": each.rule, "description": each.description}
            for each in error.violations
        ],
        "waits": waits_of(error),
        "notes": list(getattr(error, "__notes__", ())),
    }


def kind_of(error: PlacetError) -> str:
    """The outcome's kind, or the exit code's name where there is no outcome."""
    from placet_server.cli.document import word
    from placet_server.cli.exit_code import code_of_error

    if error.outcome is not None and error.outcome.kind:
        from placet.v1 import outcome_pb2

        return word(outcome_pb2.OutcomeKind.DESCRIPTOR, error.outcome.kind)
    return code_of_error(error).name


_EFFECTS = {
    "NOT_DONE": "it has certainly not happened",
    "DONE": "it has certainly happened",
    "UNKNOWN": "it may have happened; nobody knows yet",
}
_AGAIN = "find out why first; then a new --key, or an operator's `placet redrive`, tries it again"
_TOO_EARLY = "what was lost may still act: say so once `placet ambiguous` shows it as over"
_MODEL_MISSING = (
    "`placet capabilities {agent}` names its model, and `placet status` tells an operator which models there are here, "
    "and what is missing"
)
_UNAVAILABLE = {
    "extra_missing": "whoever runs the server installs its extra `agents`",
    "credential_missing": "whoever runs the server gives the model its secret; `placet status` tells which has none",
    "price_unknown": "whoever runs the server says what the model costs, in a file, $PLACET_MODEL_FILE",
    "model_unknown": "`placet capabilities {agent}` names its model; whoever runs the server allows it, by "
    "$PLACET_MODELS_ALLOWED=kind:model or a file, $PLACET_MODEL_FILE, and sees in `placet status` what is there",
}
_FAILURES = {
    "agent_arguments": "say it with --argument NAME=…, and with another --key if you gave one",
}
_REASONS = {
    "RETRY_BUDGET": _AGAIN,
    "QUEUE_DELAY": _AGAIN,
    "SESSION_BUSY": "`placet watch` tells when that run is over",
    "SESSION_CLOSED": "`placet chat` begins another session",
    "STATE_CONFLICT": "`placet show` tells how it stands",
    "STALE_DIGEST": "it is not what was looked at: `placet show` tells what it is now",
    "NOT_ELIGIBLE": "somebody else has to decide it: `placet show` tells who may",
    "DECISION_CONFLICT": "`placet show` tells how you have voted",
    "APPROVAL_REQUIRED": "once people have said yes it runs by itself: `placet watch`, or the same --key",
    "APPROVAL_DENIED": "`placet show` of its approval tells who said no, and why; asking anew needs a new --key",
    "APPROVAL_REVOKED": "`placet show` of its approval tells who took a yes back; asking anew needs a new --key",
    "APPROVAL_EXPIRED": "asking anew needs a new --key; `placet inbox` is where people see it",
    "CAPABILITY_NOT_FOUND": "`placet capabilities` lists what can be called, with --agents the agents alone",
    "UNAUTHENTICATED": "set $PLACET_TOKEN, or $PLACET_TOKEN_FILE to the token file of `placet dev`",
}
_ADVICE = {
    "NEVER": "repeating cannot help; change the request",
    "SAME_KEY": "repeat it with the same --key",
    "NEW_KEY": "a new attempt needs a new --key",
    "AFTER_WAIT": "look again later (placet show, placet watch); repeating changes nothing until it is known",
}
