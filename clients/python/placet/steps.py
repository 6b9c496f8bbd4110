"""What a client does, as steps that the sync and the async driver both follow. Pure: nothing here waits or sends.

A generator yields `Send` (it is resumed with the response, or the PlacetError is thrown into it) and `Pause`; what
it returns is the result. So both clients retry, look up and wait alike, and tests follow the steps without a
server.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from placet.errors import InvalidRequestError, NotFoundError, PlacetError, TransportError
from placet.requests import PreparedCall, wait_request
from placet.result import Result
from placet.retry import Deadline, RetryPolicy
from placet.status import error_of_action
from placet.v1 import action_pb2

ResultT = TypeVar("ResultT")

SEND_SECONDS_MIN = 0.001
WAIT_SECONDS_MAX = 30.0
WAIT_MARGIN_SECONDS = 5.0

_STANDING = frozenset({action_pb2.ACTION_STATE_QUEUED, action_pb2.ACTION_STATE_RUNNING})


@dataclass(frozen=True, slots=True)
class Send:
    """One RPC with its own deadline."""

    method: str
    request: Message
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Steps: TypeAlias = Generator[Send | Pause, Any, ResultT]


def ask(method: str, request: Message, deadline: Deadline, policy: RetryPolicy) -> Steps[Any]:
    """A request that changes nothing when it is repeated."""
    sent = 0
    while True:
        sent += 1
        try:
            return (yield Send(method, request, max(deadline.seconds_left(), SEND_SECONDS_MIN)))
        except PlacetError as error:
            pause = policy.pause_seconds(error, sent, deadline.seconds_left())
            if pause is None:
                raise
        yield Pause(pause)


def call(prepared: PreparedCall, keyless: set[str], deadline: Deadline, policy: RetryPolicy) -> Steps[Result]:
    """Execute until there is an answer, or no time for another try. `keyless` remembers capabilities that take no
    key."""
    sent = 0
    while True:
        if prepared.key_is_automatic and prepared.capability in keyless:
            prepared = prepared.without_key()
        sent += 1
        try:
            response = yield Send("Execute", prepared.execute_request(), _working(deadline))
            return Result.of(response.action, attached=response.attached)
        except PlacetError as error:
            if refuses_key(error) and prepared.key_is_automatic:
                keyless.add(prepared.capability)
                continue
            pause = policy.pause_seconds(error, sent, deadline.working_seconds_left())
            if pause is None:
                if isinstance(error, TransportError) and prepared.key:
                    return (yield from look_up(prepared, error, deadline))
                raise
        yield Pause(pause)


def look_up(prepared: PreparedCall, lost: TransportError, deadline: Deadline) -> Steps[Result]:
    """The reply is lost for good: what became of the key? Raises what the action ended with, or `lost` when nobody
    can say."""
    try:
        response = yield Send(
            "GetAction", prepared.lookup_request(), max(deadline.seconds_left(), SEND_SECONDS_MIN)
        )
    except NotFoundError:
        lost.add_note(
            f"No action is stored under key {prepared.key!r}; a request under way may still store one."
        )
        raise lost from None
    except PlacetError as error:
        lost.add_note(f"Asking for key {prepared.key!r} failed too: {error}")
        raise lost from None
    ended = error_of_action(response.action)
    if ended is not None:
        raise ended from lost
    return Result.of(response.action, attached=True)


def wait(action_id: str, deadline: Deadline, policy: RetryPolicy) -> Steps[action_pb2.Action]:
    """Long polls until the action is terminal or ambiguous, or the time is over."""
    while True:
        seconds = min(deadline.working_seconds_left(), WAIT_SECONDS_MAX)
        poll = Deadline(seconds + WAIT_MARGIN_SECONDS)
        response = yield from ask("WaitAction", wait_request(action_id, seconds), poll, policy)
        action: action_pb2.Action = response.action
        if action.state not in _STANDING or deadline.working_seconds_left() <= 0:
            return action


def refuses_key(error: PlacetError) -> bool:
    return (
        isinstance(error, InvalidRequestError) and error.metadata.get("rule") == "idempotency_key_unsupported"
    )


def _working(deadline: Deadline) -> float:
    return max(deadline.working_seconds_left(), SEND_SECONDS_MIN)
