"""A typed error as what a handler ends with, and back: who asked for it meets the same reason, then or later."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from placet.failure import Category, Failure
from placet_server.model.ending_errors import HandlerFailed
from placet_server.model.errors import Code, PlacetError

KEPT_MAX = 256

_CATEGORIES: dict[Code, Category] = {
    Code.INVALID_ARGUMENT: "invalid",
    Code.NOT_FOUND: "not_found",
    Code.FAILED_PRECONDITION: "conflict",
    Code.ALREADY_EXISTS: "conflict",
    Code.PERMISSION_DENIED: "forbidden",
    Code.UNAUTHENTICATED: "forbidden",
}
_CODES: dict[str, Code] = {
    "INVALID": Code.INVALID_ARGUMENT,
    "NOT_FOUND": Code.NOT_FOUND,
    "CONFLICT": Code.FAILED_PRECONDITION,
    "FORBIDDEN": Code.PERMISSION_DENIED,
}


@dataclass(kw_only=True, eq=False)
class Recorded(PlacetError):
    """As an action has kept it: its reason and what it said, without its variables."""

    reason: str  # type: ignore[misc]
    code: Code
    message: str

    def text(self) -> str:
        return self.message

    def metadata(self) -> dict[str, str]:
        return {}


class Errors:
    """Of the actions that ended here lately, whole."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, PlacetError] = OrderedDict()

    def failure_of(self, action_id: str, error: PlacetError) -> Failure:
        """What the handler raises: nothing was changed."""
        category = _CATEGORIES.get(error.code)
        if category is None:
            # Away, or overloaded: whether it was changed is found out by trying again.
            return Failure(error.reason, error.text(), category="temporary")
        self._kept[action_id] = error
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return Failure(error.reason, error.text(), category=category, effect="not_done")

    def error_of(self, failed: HandlerFailed) -> PlacetError:
        """What the caller meets."""
        code = _CODES.get(failed.category)
        if code is None or failed.outcome is None:
            return failed
        known = self._kept.get(failed.outcome.action_id)
        error: Any = known or Recorded(reason=failed.failure_code, code=code, message=failed.message)
        error.outcome = failed.outcome
        told: PlacetError = error
        return told
