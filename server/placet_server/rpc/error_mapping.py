"""The one place where an exception becomes a status."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any
from uuid import uuid4

import grpc

from placet_server.model.errors import InternalFault, PlacetError, StoreUnavailable
from placet_server.rpc.call import CallerGone, Method, Rpc
from placet_server.rpc.status import wire_status

log = logging.getLogger("placet.rpc")

STATUS_SECONDS = 10.0
_STORE_LOG_SECONDS = 5.0
# The transport's clock of deadlines and the one that tells the time left are not the same.
_DEADLINE_SECONDS = 0.01


class ErrorMapping:
    """Of one method."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._store_log_at = 0.0

    def failure_of(self, error: BaseException, rpc: Rpc[Any]) -> PlacetError:
        """A PlacetError is its own, and holds no frame any more, as one that held it would be kept until the collector
        looks; the rest is logged whole and leaves as INTERNAL.

        Raises CancelledError if the caller is not there any more to be told.
        """
        if isinstance(error, PlacetError):
            if isinstance(error, StoreUnavailable):
                self._warn(error)
            return error.with_traceback(None)
        if isinstance(error, CallerGone):
            rpc.code = grpc.StatusCode.CANCELLED
            raise asyncio.CancelledError from None
        if isinstance(error, asyncio.CancelledError):
            rpc.code = _code_of_leaving(rpc)
            if _cancelled_from_outside():
                raise error
            # Raised by the handler's own doing: the caller is still there, and would wait for ever.
        return _incident(error, rpc)

    def _warn(self, error: StoreUnavailable) -> None:
        """An outage meets every call; one line in five seconds, of each method, tells it."""
        if monotonic() >= self._store_log_at:
            self._store_log_at = monotonic() + _STORE_LOG_SECONDS
            log.warning("store unavailable in %s: %s", self._method.path, error.detail)


async def abort(rpc: Rpc[Any], failure: PlacetError) -> None:
    """Sends the failure's status, after the announcement if one is on its way. The call has ended then."""
    try:
        status = wire_status(failure)
    except Exception as error:
        failure = _incident(error, rpc)
        status = wire_status(failure)
    rpc.code = status.code
    rpc.reason = failure.reason
    if rpc.announcement is not None:
        await rpc.announcement
    try:
        async with asyncio.timeout(STATUS_SECONDS):
            await rpc.context.abort(status.code, status.message, status.trailers)
    except grpc.aio.AbortError as aborted:
        # Grpc keeps it, and raises it again after the handler; with the frames it would keep the whole call.
        aborted.__traceback__ = None
    except (TimeoutError, grpc.aio.InternalError):
        # Who takes no messages takes no status either, nor does who has gone meanwhile.
        raise asyncio.CancelledError from None


def _code_of_leaving(rpc: Rpc[Any]) -> grpc.StatusCode:
    """The transport cancels a call alike when its caller leaves and when its deadline passes."""
    left: float | None = rpc.context.time_remaining()
    late = left is not None and left < _DEADLINE_SECONDS
    return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _incident(error: BaseException, rpc: Rpc[Any]) -> InternalFault:
    incident_id = uuid4().hex
    log.error(
        "incident %s in %s",
        incident_id,
        rpc.method.path,
        exc_info=error,
        extra={"incident_id": incident_id, "action_id": rpc.action_id, "trace_id": rpc.trace_id},
    )
    return InternalFault(incident_id=incident_id)
