"""One exit code per kind of outcome, so that scripts need not read text."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placet.errors import PlacetError


class ExitCode(IntEnum):
    """The table of docs/cli.md. `call` and `watch` end with the action's outcome, all others with their own."""

    SUCCEEDED = 0
    USAGE = 2
    REFUSED = 3
    FAILED = 4
    CANCELLED = 5
    EXHAUSTED = 6
    AMBIGUOUS = 7
    PENDING = 8
    NOT_FOUND = 9
    FORBIDDEN = 10
    UNAVAILABLE = 11
    CONFLICT = 12
    WAITING = 13
    DENIED = 14
    INTERNAL = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def code_of_error(error: PlacetError) -> ExitCode:
    """Of what the SDK raised. A class that is younger than this table counts as its base."""
    from placet import errors

    table: dict[type[PlacetError], ExitCode] = {
        errors.NotFoundError: ExitCode.NOT_FOUND,
        errors.UnauthenticatedError: ExitCode.FORBIDDEN,
        errors.PermissionDeniedError: ExitCode.FORBIDDEN,
        errors.ConflictError: ExitCode.CONFLICT,
        errors.RefusedError: ExitCode.REFUSED,
        errors.UnavailableError: ExitCode.UNAVAILABLE,
        errors.TransportError: ExitCode.UNAVAILABLE,
        errors.FailedError: ExitCode.FAILED,
        errors.ActionCancelled: ExitCode.CANCELLED,
        errors.ExhaustedError: ExitCode.EXHAUSTED,
        errors.AmbiguousError: ExitCode.AMBIGUOUS,
        errors.PendingError: ExitCode.PENDING,
        errors.WaitingError: ExitCode.WAITING,
        errors.DeniedError: ExitCode.DENIED,
    }
    return next((table[kind] for kind in type(error).__mro__ if kind in table), ExitCode.INTERNAL)
