"""What a handler says and how it ends, as frames. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import duration_pb2

from placet.failure import CODE_LENGTH_MAX, CallOutcome, Category, Effect, Failure
from placet.v1 import connector_service_pb2 as pb
from placet.v1 import error_reason_pb2, outcome_pb2

PAYLOAD_BYTES_MAX = 3 * 1024 * 1024
CHUNK_BYTES_MAX = 256 * 1024
CURSOR_BYTES_MAX = 64 * 1024
OPERATION_LENGTH_MAX = 256
MESSAGE_LENGTH_MAX = 4096
PROGRESS_LENGTH_MAX = 1024
RETRY_DELAY_SECONDS_MAX = 86_400.0
DEPTH_MAX = 64
SCOPES_MAX = 64
SCOPE_LENGTH_MAX = 128

UNDECLARED_ERROR = "undeclared_error"

# What Placet's store or UTF-8 cannot hold.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CATEGORIES: dict[Category, outcome_pb2.FailureCategory.ValueType] = {
    "invalid": outcome_pb2.FAILURE_CATEGORY_INVALID,
    "not_found": outcome_pb2.FAILURE_CATEGORY_NOT_FOUND,
    "conflict": outcome_pb2.FAILURE_CATEGORY_CONFLICT,
    "forbidden": outcome_pb2.FAILURE_CATEGORY_FORBIDDEN,
    "rate_limited": outcome_pb2.FAILURE_CATEGORY_RATE_LIMITED,
    "temporary": outcome_pb2.FAILURE_CATEGORY_TEMPORARY,
    "permanent": outcome_pb2.FAILURE_CATEGORY_PERMANENT,
}
_EFFECTS: dict[Effect, outcome_pb2.EffectState.ValueType] = {
    "unknown": outcome_pb2.EFFECT_STATE_UNKNOWN,
    "not_done": outcome_pb2.EFFECT_STATE_NOT_DONE,
    "done": outcome_pb2.EFFECT_STATE_DONE,
}


class NotJson(ValueError):
    """A value that JSON cannot say. The text has no part of the value."""


def accepted() -> pb.InvokeResponse:
    return pb.InvokeResponse(accepted=pb.InvokeAccepted())


def effect_mark(_: int) -> pb.InvokeResponse:
    return pb.InvokeResponse(effect_mark=pb.EffectMark())


def checkpoint(operation: str, cursor: Any) -> pb.Checkpoint:
    """Without its number. Raises ValueError."""
    if _UNSTORABLE.search(operation):
        raise ValueError("operation has a NUL or a lone surrogate")
    if not 0 < len(operation) <= OPERATION_LENGTH_MAX:
        raise ValueError(f"operation has 1 to {OPERATION_LENGTH_MAX} characters, not {len(operation)}")
    text = "" if cursor is None else json_text(cursor)
    _check_size("cursor", text.encode(), CURSOR_BYTES_MAX)
    return pb.Checkpoint(provider_operation=operation, provider_cursor_json=text)


def chunk(data: Any) -> pb.InvokeChunk:
    """Without its number. Raises ValueError for what is no JSON, or too large."""
    if isinstance(data, bytes):
        _check_size("chunk", data, CHUNK_BYTES_MAX)
        return pb.InvokeChunk(binary=data)
    if isinstance(data, str):
        _check_size("chunk", data.encode(), CHUNK_BYTES_MAX)
        return pb.InvokeChunk(text=data)
    text = json_text(data)
    _check_size("chunk", text.encode(), CHUNK_BYTES_MAX)
    return pb.InvokeChunk(json=text)


def progress(message: str, fraction: float | None) -> pb.InvokeProgress:
    """Without its number. Raises ValueError for a fraction outside 0 to 1."""
    if fraction is not None and not 0.0 <= fraction <= 1.0:
        raise ValueError(f"fraction is from 0 to 1, not {fraction}")
    return pb.InvokeProgress(message=storable(message, PROGRESS_LENGTH_MAX), fraction=fraction)


def child_call(
    step: str,
    capability: str,
    value: Any,
    version: str,
    timeout_seconds: float | None,
    scopes: frozenset[str] | None,
) -> pb.ChildCall:
    """Without its number. Raises ValueError: that is a mistake in the handler."""
    if not _STEP.fullmatch(step):
        raise ValueError(f"a step is 1 to 64 of letters, digits, '_', '.' and '-', not {step!r}")
    if timeout_seconds is not None and timeout_seconds <= 0:
        raise ValueError(f"a timeout is more than 0 seconds, not {timeout_seconds}")
    text = json_text(value)
    _check_size("child's input", text.encode(), PAYLOAD_BYTES_MAX)
    said = pb.ChildCall(step=step, capability=capability, version=version, input_json=text)
    if timeout_seconds is not None:
        said.timeout.CopyFrom(duration(max(timeout_seconds, 1e-6)))
    if scopes is not None:
        if len(scopes) > SCOPES_MAX or any(not 0 < len(scope) <= SCOPE_LENGTH_MAX for scope in scopes):
            raise ValueError(
                f"at most {SCOPES_MAX} scopes, each of 1 to {SCOPE_LENGTH_MAX} characters, not {sorted(scopes)}"
            )
        said.scopes.CopyFrom(pb.ScopeLimit(scopes=sorted(scopes)))
    return said


def call_outcome(ended: pb.ChildResult) -> CallOutcome:
    """As the handler is told."""
    outcome = ended.outcome
    effect = outcome_pb2.EffectState.Name(outcome.effect).removeprefix("EFFECT_STATE_").lower()
    delay = outcome.retry_delay.ToTimedelta().total_seconds() if outcome.HasField("retry_delay") else None
    return CallOutcome(
        kind=outcome_pb2.OutcomeKind.Name(outcome.kind).removeprefix("OUTCOME_KIND_").lower(),
        reason=error_reason_pb2.ErrorReason.Name(outcome.reason).removeprefix("ERROR_REASON_"),
        action_id=ended.action_id,
        attempt=outcome.attempt,
        effect=None if effect == "unspecified" else effect,
        failure_code=outcome.failure_code,
        message=outcome.message,
        retry_delay_seconds=delay,
    )


def result(value: Any) -> pb.InvokeResponse:
    """The handler returned. What cannot be sent is a failure of what was done all the same."""
    try:
        output = json_text(value)
        _check_size("output", output.encode(), PAYLOAD_BYTES_MAX)
    except NotJson as error:
        return _bad_output("output_not_json", str(error))
    except ValueError as error:
        return _bad_output("output_too_large", str(error))
    return pb.InvokeResponse(result=pb.InvokeResult(output_json=output))


def failure(declared: Failure) -> pb.InvokeResponse:
    """Raises what a failure raises whose members are not what its class promises."""
    frame = pb.InvokeFailure(
        effect=_EFFECTS[declared.effect],
        category=_CATEGORIES[declared.category],
        code=storable(declared.code, CODE_LENGTH_MAX),
        message=storable(declared.message, MESSAGE_LENGTH_MAX),
    )
    if declared.retry_delay_seconds is not None:
        seconds = max(0.0, min(RETRY_DELAY_SECONDS_MAX, declared.retry_delay_seconds))
        frame.retry_delay.CopyFrom(duration(seconds))
    return pb.InvokeResponse(failure=frame)


def undeclared() -> pb.InvokeResponse:
    """The author's log has the error; nothing of it leaves this process."""
    return pb.InvokeResponse(
        failure=pb.InvokeFailure(
            effect=outcome_pb2.EFFECT_STATE_UNKNOWN,
            category=outcome_pb2.FAILURE_CATEGORY_PERMANENT,
            code=UNDECLARED_ERROR,
            message="The handler raised an error that it does not declare, or was stopped; the connector's log has it.",
        )
    )


def json_text(value: Any) -> str:
    """Raises NotJson for anything but what JSON and UTF-8 can say."""
    _check_json(value)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        raise NotJson("a text has a lone surrogate") from None
    except (TypeError, ValueError) as error:
        raise NotJson(str(error)) from None
    return text


def word(enum: Any, number: int, prefix: str) -> str:
    """A value's name, without its prefix; the number itself for one that is younger than this process."""
    return enum.Name(number).removeprefix(prefix) if number in enum.values() else str(number)


def storable(text: str, length_max: int) -> str:
    return _UNSTORABLE.sub("\ufffd", text[:length_max])


def duration(seconds: float) -> duration_pb2.Duration:
    whole = int(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def _bad_output(code: str, text: str) -> pb.InvokeResponse:
    return failure(Failure(code, text, effect="done"))


def _check_size(what: str, text: bytes, bytes_max: int) -> None:
    if len(text) > bytes_max:
        raise ValueError(f"a {what} has at most {bytes_max} bytes, not {len(text)}")


def _check_json(value: Any) -> None:
    """Level by level, as recursion would end the process before it ends the value."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        if not level:
            return
        level = [child for node in level for child in _children(node)]
    raise NotJson(f"nested deeper than {DEPTH_MAX} levels")


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for name, member in node.items():
            if not isinstance(name, str):
                raise NotJson(f"a member's name is a {type(name).__name__}, not a str")
            if isinstance(member, dict | list | tuple):
                yield member
    elif isinstance(node, list | tuple):
        for element in node:
            if isinstance(element, dict | list | tuple):
                yield element
