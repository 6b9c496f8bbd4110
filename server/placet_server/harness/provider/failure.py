"""What an error of the library means: by the status, then by the provider's code, then by its class. Never by its
words, which providers change, and which may be somebody's prompt. (The library itself looks at words here and there to
choose a class; so where there is a status, the class is not asked.)
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)

from placet_server.harness.provider.answer import TurnFailure
from placet_server.model.entry import TurnProblem

# Where a 429 says that waiting does not help.
_SPENT = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "exceeded_current_quota_error",
    }
)
_TOO_LONG = frozenset({"context_length_exceeded"})
_NOT_SENT = ("pool", "connect")
_STATUSES = {
    401: TurnProblem.UNAUTHORIZED,
    403: TurnProblem.UNAUTHORIZED,
    408: TurnProblem.TIMEOUT,
    425: TurnProblem.UNAVAILABLE,
    429: TurnProblem.RATE_LIMITED,
    504: TurnProblem.TIMEOUT,
    529: TurnProblem.RATE_LIMITED,
}


def failure_of(
    error: Exception, scrub: Callable[[str], str], *, is_long: bool, is_sent: bool = True
) -> TurnFailure:
    """`is_long`: the request has about as many tokens as the model takes, or more: what a provider then refuses, it
    refuses for that, if it gives no code. `is_sent`: it may have been sent; what cannot be is so with every try.
    """
    detail = scrub(str(error))
    if not is_sent and not isinstance(error, ModelAPIError):
        return TurnFailure(TurnProblem.INVALID, detail=_named(error, detail))
    match error:
        case ModelHTTPError():
            return TurnFailure(
                _of_status(error, is_long),
                status=error.status_code,
                retry_after_seconds=error.retry_after,
                charged=error.in_stream,
                detail=detail,
            )
        case ModelRequestTimeout():
            return TurnFailure(TurnProblem.TIMEOUT, charged=True, detail=detail)
        case ModelTimeoutError():
            return TurnFailure(TurnProblem.TIMEOUT, charged=error.phase not in _NOT_SENT, detail=detail)
        case ModelConnectionError():
            return TurnFailure(TurnProblem.UNAVAILABLE, charged=error.phase not in _NOT_SENT, detail=detail)
        case ModelAPIError():
            # An error within a stream, of a type that nobody knows.
            return TurnFailure(
                TurnProblem.UNAVAILABLE, retry_after_seconds=error.retry_after, charged=True, detail=detail
            )
        case ContentFilterError():
            return TurnFailure(TurnProblem.REFUSED, charged=True, detail=detail)
        case UserError():
            return TurnFailure(TurnProblem.INVALID, detail=detail)
        case UnexpectedModelBehavior() | ValueError():
            # What came makes no sense, as what was cut off in the middle of a word does not.
            return TurnFailure(TurnProblem.TRUNCATED, charged=True, detail=_named(error, detail))
        case _:
            return TurnFailure(TurnProblem.INVALID, charged=True, detail=_named(error, detail))


def _named(error: Exception, detail: str) -> str:
    return f"{type(error).__name__}: {detail}"


def _of_status(error: ModelHTTPError, is_long: bool) -> TurnProblem:
    status = error.status_code
    codes = {error.provider_error_code, error.provider_error_type}
    if codes & _TOO_LONG:
        return TurnProblem.CONTEXT_TOO_LONG
    if status == 429 and codes & _SPENT:
        return TurnProblem.REFUSED
    if status in _STATUSES:
        return _STATUSES[status]
    if status >= 500:
        return TurnProblem.UNAVAILABLE
    if status in (400, 413, 422) and is_long:
        return TurnProblem.CONTEXT_TOO_LONG
    return TurnProblem.REFUSED
