"""What a client does, as steps that the sync and the async driver both follow. Pure: nothing here waits or sends.

A generator yields `Send` (it is resumed with the response, or the PlacetError is thrown into it) and `Pause`; what
it returns is the result. So both clients retry, look up and wait alike, and tests follow the steps without a
server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from placet.errors import ConflictError, InvalidRequestError, NotFoundError, PlacetError, TransportError
from placet.requests import Place, PreparedCall, wait_request
from placet.result import CancelCount, Result, Submitted
from placet.retry import Deadline, RetryPolicy
from placet.status import error_of_action
from placet.v1 import action_pb2, recovery_service_pb2, runtime_service_pb2

ResultT = TypeVar("ResultT")

SEND_SECONDS_MIN = 0.001
WAIT_SECONDS_MAX = 30.0
WAIT_MARGIN_SECONDS = 5.0

_STANDING = frozenset(
    {action_pb2.ACTION_STATE_QUEUED, action_pb2.ACTION_STATE_RUNNING, action_pb2.ACTION_STATE_WAITING}
)


@dataclass(frozen=True, slots=True)
class Send:
    """One RPC with its own deadline."""

    method: str
    request: Message
    seconds: float
    metadata: tuple[tuple[str, str], ...] = ()


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
    try:
        response = yield from invoke(
            "Execute", PreparedCall.execute_request, prepared, keyless, deadline, policy
        )
    except TransportError as lost:
        if is_keyless(prepared, keyless):
            raise
        return (yield from look_up(prepared, lost, deadline))
    return Result.of(response.action, attached=response.attached)


def submit(
    prepared: PreparedCall, place: Place, keyless: set[str], deadline: Deadline, policy: RetryPolicy
) -> Steps[Submitted]:
    """Submit until it is known to be stored, or no time is left for another try."""

    def request(sent: PreparedCall) -> Message:
        return sent.submit_request(place)

    try:
        response = yield from invoke("Submit", request, prepared, keyless, deadline, policy)
    except TransportError as lost:
        if is_keyless(prepared, keyless):
            raise
        action = yield from _holder(prepared, lost, deadline)
        return Submitted.of(action, attached=True)
    return Submitted.of(response.action, attached=response.attached)


def invoke(
    method: str,
    request: Callable[[PreparedCall], Message],
    prepared: PreparedCall,
    keyless: set[str],
    deadline: Deadline,
    policy: RetryPolicy,
) -> Steps[Any]:
    """The method's response, whatever is lost on the way, or no time is left for another try."""
    sent = 0
    while True:
        if prepared.key_is_automatic and prepared.capability in keyless:
            prepared = prepared.without_key()
        sent += 1
        try:
            return (yield Send(method, request(prepared), _working(deadline), prepared.metadata))
        except PlacetError as error:
            if refuses_key(error) and prepared.key_is_automatic:
                keyless.add(prepared.capability)
                continue
            if isinstance(error, ConflictError):
                # The advice is for the key's holder: this request would be refused again.
                raise
            pause = policy.pause_seconds(error, sent, deadline.working_seconds_left())
            if pause is None:
                raise
        yield Pause(pause)


def is_keyless(prepared: PreparedCall, keyless: set[str]) -> bool:
    """Nobody can ask by its key what became of it."""
    return not prepared.key or (prepared.key_is_automatic and prepared.capability in keyless)


def look_up(prepared: PreparedCall, lost: TransportError, deadline: Deadline) -> Steps[Result]:
    """The reply is lost for good: what became of the key? Raises what the action ended with, or `lost` when nobody
    can say."""
    action = yield from _holder(prepared, lost, deadline)
    if prepared.returns_waiting and action.state == action_pb2.ACTION_STATE_WAITING:
        return Result.of(action, attached=True)
    ended = error_of_action(action)
    if ended is not None:
        raise ended from lost
    return Result.of(action, attached=True)


def _holder(prepared: PreparedCall, lost: TransportError, deadline: Deadline) -> Steps[action_pb2.Action]:
    """The action that holds the key. Raises `lost` when nobody can say."""
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
    action: action_pb2.Action = response.action
    return action


def redrive(
    request: recovery_service_pb2.RedriveRequest, deadline: Deadline, policy: RetryPolicy
) -> Steps[list[recovery_service_pb2.SelectionResult]]:
    """A filter is made ids first: sent again after a lost reply, it would select further dead letters."""
    if request.selection.HasField("filter") and not request.validate_only:
        look = recovery_service_pb2.RedriveRequest()
        look.CopyFrom(request)
        look.validate_only = True
        seen = yield from ask("Redrive", look, deadline, policy)
        ids = [result.action_id for result in seen.results]
        if not ids:
            return []
        selection = recovery_service_pb2.EndedSelection(action_ids=ids, count_max=len(ids))
        request.selection.CopyFrom(selection)
    response = yield from ask("Redrive", request, deadline, policy)
    return list(response.results)


def cancel_all(
    request: runtime_service_pb2.CancelActionsRequest, deadline: Deadline, policy: RetryPolicy
) -> Steps[CancelCount]:
    """Page after page. After a lost reply a page is sent again; what it marked then counts as matched alone."""
    matched = marked = ended = 0
    while True:
        page = yield from ask("CancelActions", request, deadline, policy)
        matched, marked, ended = matched + page.matched, marked + page.marked, ended + page.ended
        if not page.next_page_token:
            return CancelCount(matched=matched, marked=marked, ended=ended)
        request.page_token = page.next_page_token


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
