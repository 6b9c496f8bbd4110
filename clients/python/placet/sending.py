"""One RPC of the blocking client, which the main thread does not enter: see `placet.aside`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from placet.aside import Aside
from placet.errors import PlacetError
from placet.status import error_of_rpc


class Sending:
    """`open` sends it: gRPC's future of one reply, or its iterator of responses. Of these two only the threads of
    `aside` have references, as the end of the last one goes into gRPC, too.
    """

    def __init__(self, aside: Aside, open: Callable[[], Any]) -> None:
        self._aside = aside
        self._open = open
        self._call: Any = None
        self._is_cancelled = False

    def reply(self) -> Any:
        """Raises PlacetError."""
        return self._told(self._reply)

    def next(self) -> Any:
        """The next response; None after the last one. Raises PlacetError."""
        return self._told(self._next)

    def cancel(self) -> None:
        """Unless it has ended; may be called while another thread waits."""
        self._is_cancelled = True
        if self._call is not None:
            self._aside.begin(self._cancel)

    def _told(self, work: Callable[[], Any]) -> Any:
        answer = self._aside.do(work)
        if not isinstance(answer, PlacetError):
            return answer
        try:
            raise answer
        finally:
            # Otherwise it would live until the collector looks.
            del answer

    def _reply(self) -> Any:
        try:
            return self._opened().result()
        except grpc.RpcError as failure:
            return _error_of(failure)
        finally:
            self._call = None

    def _next(self) -> Any:
        try:
            return next(self._opened())
        except StopIteration:
            self._call = None
            return None
        except grpc.RpcError as failure:
            self._call = None
            return _error_of(failure)

    def _opened(self) -> Any:
        if self._call is not None:
            return self._call
        call = self._call = self._open()
        if self._is_cancelled:
            call.cancel()
        return call

    def _cancel(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


def _error_of(failure: Any) -> PlacetError:
    # It is the call itself, and its frames refer to it: it would live until the collector looks.
    failure.__traceback__ = None
    return error_of_rpc(failure)
