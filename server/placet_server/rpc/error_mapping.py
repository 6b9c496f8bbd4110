"""The one place where an exception becomes a status."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any
from uuid import uuid4

import grpc

from placet_server.model.errors import InternalFault, PlacetError, StoreUnavailable
from placet_server.rpc.call import CallerGone, Method, Next, Rpc
from placet_server.rpc.status import wire_status

log = logging.getLogger("placet.rpc")

_STORE_LOG_SECONDS = 5.0
# The transport's clock of deadlines and the one that tells the time left are not the same.
_DEADLINE_SECONDS = 0.01


def layer(method: Method, inner: Next) -> Next:
    """PlacetError → its status; CancelledError passes; the rest is logged whole and leaves as INTERNAL."""
    store = _StoreLog()

    async def mapped(rpc: Rpc[Any]) -> bytes | None:
        failure: PlacetError
        try:
            response = await inner(rpc)
            if rpc.announcement is not None:
                await rpc.announcement
            return response
        except PlacetError as error:
            failure = error
            if isinstance(error, StoreUnavailable):
                store.warn(error, method)
        except CallerGone:
            rpc.code = grpc.StatusCode.CANCELLED
            raise asyncio.CancelledError from None
        except asyncio.CancelledError as error:
            rpc.code = _code_of_leaving(rpc)
            if _cancelled_from_outside():
                raise
            # Raised by the handler's own doing: the caller is still there, and would wait for ever.
            failure = _incident(error, rpc)
        except Exception as error:
            failure = _incident(error, rpc)
        finally:
            rpc.finished = True
        await _abort(rpc, failure)
        return None

    return mapped


async def _abort(rpc: Rpc[Any], failure: PlacetError) -> None:
    try:
        status = wire_status(failure)
    except Exception as error:
        failure = _incident(error, rpc)
        status = wire_status(failure)
    rpc.code = status.code
    rpc.reason = failure.reason
    if rpc.announcement is not None:
        await rpc.announcement
    await rpc.context.abort(status.code, status.message, status.trailers)


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


class _StoreLog:
    """An outage meets every call; one line in five seconds, of each method, tells it."""

    def __init__(self) -> None:
        self._next = 0.0

    def warn(self, error: StoreUnavailable, method: Method) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + _STORE_LOG_SECONDS
            log.warning("store unavailable in %s: %s", method.path, error.detail)
