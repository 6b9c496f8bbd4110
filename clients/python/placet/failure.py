"""What an author raises, and what an author gets for a declaration that cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

Category = Literal["invalid", "not_found", "conflict", "forbidden", "rate_limited", "temporary", "permanent"]
Effect = Literal["unknown", "not_done", "done"]

CODE_LENGTH_MAX = 64


class Failure(Exception):
    """Raised by a handler: the work did not succeed.

    `code` is stable and for programs ("card_declined"), `message` is for people. `effect` says what became of the
    effect; who does not say it is read as unknown: unless the effect class makes repeating safe, the action then ends
    AMBIGUOUS. "temporary" and "rate_limited" with effect "not_done" may be tried again, after `retry_delay` (seconds or
    timedelta). `details` is for the log of the author's own process and never leaves it. Raises ValueError for words
    that do not exist.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        category: Category = "permanent",
        effect: Effect = "unknown",
        retry_delay: timedelta | float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        if not 1 <= len(code) <= CODE_LENGTH_MAX:
            raise ValueError(f"code has 1 to {CODE_LENGTH_MAX} characters, not {len(code)}")
        if category not in get_args(Category):
            raise ValueError(f"category is one of {', '.join(get_args(Category))}, not {category!r}")
        if effect not in get_args(Effect):
            raise ValueError(f"effect is one of {', '.join(get_args(Effect))}, not {effect!r}")
        self.code = code
        self.message = message
        self.category: Category = category
        self.effect: Effect = effect
        self.retry_delay_seconds = (
            retry_delay.total_seconds() if isinstance(retry_delay, timedelta) else retry_delay
        )
        self.details = dict(details or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """How a call of another capability ended, if it did not succeed.

    `kind` is "refused" (nothing was stored, nothing ran), "failed", "cancelled", "exhausted" or "ambiguous"; `reason`
    an ErrorReason without prefix. `action_id` is the child's, "" if it was refused. `effect` is None where the
    capability has none.
    """

    kind: str
    reason: str
    action_id: str = ""
    attempt: int = 0
    effect: str | None = None
    failure_code: str = ""
    message: str = ""
    retry_delay_seconds: float | None = None


class Parked(BaseException):
    """Raised by `Context.call` in a "composed" tool: all that it waits for takes long, so it ends here, and begins
    again from its start once a step has ended. Its steps then answer with what they came to. Not to be caught.
    """


class CallFailed(Exception):
    """Raised by `Context.call`: the child did not succeed; `outcome` says how. A handler that lets it pass has failed,
    with the code "call_failed" and an effect that is not known.
    """

    def __init__(self, outcome: CallOutcome) -> None:
        what = outcome.failure_code or outcome.reason
        told = f"{outcome.kind}: {what}" if what else outcome.kind
        super().__init__(f"{told}: {outcome.message}" if outcome.message else told)
        self.outcome = outcome


def gathered(group: BaseExceptionGroup[BaseException]) -> Failure | CallFailed | None:
    """What a group of exceptions, as an `asyncio.TaskGroup` raises it, says, if all of it is declared: the first of
    those that know least of the effect. None: something in it is not.
    """
    declared: list[Failure | CallFailed] = []
    for error in group.exceptions:
        found = gathered(error) if isinstance(error, BaseExceptionGroup) else error
        if not isinstance(found, Failure | CallFailed):
            return None
        declared.append(found)
    return min(declared, key=_known)


def _known(error: Failure | CallFailed) -> int:
    return ("unknown", "done", "not_done").index(error.effect) if isinstance(error, Failure) else 0


class Cancelled(BaseException):
    """Raised by `SyncContext.raise_if_cancelled`; let it pass, as with asyncio.CancelledError."""


class DeclarationError(TypeError):
    """A tool or app that cannot work as declared. The text says what to change."""
