"""Ctrl-C raises KeyboardInterrupt between any two steps of the main thread: wherever that is, the client can be used
afterwards, and what was under way is cancelled.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import FrameType
from typing import Any

import grpc
import pytest

from placet.client import Client
from placet.v1 import runtime_service_pb2
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server
from placet_server.cli.health import CHECKS, check
from tests.sdk.support import ACTION_ID, chunk

# Where Python ends something of its own an interruption is only told.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

WAIT_SECONDS = 60


class Answers(RuntimeServiceServicer):
    """Says who calls; of any action it tells two events, and then nothing more until the stream is cancelled."""

    def __init__(self) -> None:
        self._open = 0
        self._changed = threading.Condition()

    def GetCaller(self, request: Any, context: Any) -> Any:
        return runtime_service_pb2.GetCallerResponse(identity_source="one")

    def WatchAction(self, request: Any, context: Any) -> Iterator[Any]:
        self._count(1)
        if not context.add_callback(lambda: self._count(-1)):
            self._count(-1)
        for number in (1, 2):
            yield runtime_service_pb2.WatchActionResponse(event=chunk(number))
        with self._changed:
            self._changed.wait_for(lambda: not context.is_active(), WAIT_SECONDS)

    def none_is_open(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, WAIT_SECONDS)

    def _count(self, change: int) -> None:
        with self._changed:
            self._open += change
            self._changed.notify_all()


@pytest.fixture
def answers() -> Iterator[tuple[Answers, str]]:
    """What answers in other threads than the main one, and its address."""
    servicer = Answers()  # type: ignore[abstract]
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        add_RuntimeServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        # Who waits for a lock that nobody gives back can only be ended from outside.
        faulthandler.dump_traceback_later(2 * WAIT_SECONDS, exit=True)
        try:
            yield servicer, f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()
            faulthandler.cancel_dump_traceback_later()


def interrupted(work: Callable[[], object], wanted: int) -> bool:
    """Whether `work` has so many steps as that; then it was interrupted before that one."""
    steps = count()
    is_there = False

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal is_there
        frame.f_trace_opcodes = True
        if event == "opcode" and next(steps) == wanted:
            is_there = True
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return is_there


def is_answered(client: Client) -> bool:
    """By another thread, which waits no longer than that: whoever is stuck is stuck for ever."""
    told: list[str] = []
    asking = threading.Thread(
        target=lambda: told.append(client.whoami(timeout=WAIT_SECONDS).identity_source), daemon=True
    )
    asking.start()
    asking.join(WAIT_SECONDS)
    return told == ["one"]


def test_a_call(answers: tuple[Answers, str]) -> None:
    _, target = answers
    assert threading.current_thread() is threading.main_thread()
    with Client.connect(target, token="t") as client:
        for step in count():
            if not interrupted(client.whoami, step):
                break
            assert is_answered(client), step
    assert step > 100


def test_a_stream(answers: tuple[Answers, str]) -> None:
    servicer, target = answers

    def two_of_them() -> None:
        with client.watch(ACTION_ID) as stream:
            for event in stream:
                if event.chunk.number == 2:
                    break

    with Client.connect(target, token="t") as client:
        for step in count():
            if not interrupted(two_of_them, step):
                break
            assert is_answered(client), step
        assert step > 100
        assert servicer.none_is_open()


def test_the_end_of_a_client_and_a_look_at_its_health(answers: tuple[Answers, str]) -> None:
    _, target = answers

    for step in count():
        client = Client.connect(target, token="t")
        assert client.whoami().identity_source == "one"
        if not interrupted(client.close, step):
            break
        client.close()
    assert step > 20
    for step in count():
        if not interrupted(lambda: check(target), step):
            break
    assert {"UNREACHABLE"} == set(check(target).values())
    assert set(CHECKS) == set(check(target))
