"""Submitting many at once: what each item is, and the steps in which all come to an answer. Pure, as `placet.steps`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, TypeAlias

from placet.errors import ConflictError, PlacetError, TransportError, UnavailableError
from placet.requests import (
    CallOptions,
    DurabilityWord,
    OnBusy,
    OnDuplicate,
    Place,
    PreparedCall,
    Seconds,
    prepare_call,
)
from placet.result import Submitted
from placet.retry import Deadline, RetryPolicy
from placet.status import error_of_message
from placet.steps import Pause, Send, Steps, refuses_key
from placet.v1 import action_pb2, runtime_service_pb2

ITEMS_MAX = 500
# Below what every server takes in one message; a larger item goes alone.
BATCH_BYTES_MAX = 3 * 2**20

Answer: TypeAlias = Submitted | PlacetError


@dataclass(frozen=True, slots=True)
class Submission:
    """One item of `submit_batch`: what `submit` takes, and means the same."""

    capability: str
    input: Any
    _: KW_ONLY
    queue: str = ""
    priority: int | None = None
    delay: Seconds | None = None
    ready_time: datetime | None = None
    version: str = ""
    key: str | None = None
    attempt_timeout: Seconds | None = None
    on_duplicate: OnDuplicate | None = None
    require_durability: DurabilityWord | None = None
    labels: Mapping[str, str] | None = None
    session: str = ""
    on_busy: OnBusy | None = None


@dataclass(slots=True)
class _Item:
    """One submission on its way; `answer` is the latest, and the last one counts."""

    prepared: PreparedCall
    place: Place
    answer: Answer

    def request(self, keyless: set[str]) -> runtime_service_pb2.SubmitRequest:
        if self.prepared.key_is_automatic and self.prepared.capability in keyless:
            self.prepared = self.prepared.without_key()
        return self.prepared.submit_request(self.place)


def prepare_batch(submissions: Iterable[Submission]) -> list[_Item]:
    """Raises TypeError or ValueError for what cannot be sent, before anything is."""
    return [_prepare(submission) for submission in submissions]


def submit_batch(
    items: Sequence[_Item], keyless: set[str], deadline: Deadline, policy: RetryPolicy
) -> Steps[list[Answer]]:
    """One answer for each, in their order: as many requests as they need, each sent again while that is useful."""
    for batch in _batches(items):
        if deadline.seconds_left() > 0:
            yield from _submit(batch, keyless, deadline, policy)
    return [item.answer for item in items]


def _submit(batch: list[_Item], keyless: set[str], deadline: Deadline, policy: RetryPolicy) -> Steps[None]:
    """What is answered for good is not sent again; the rest is, under the same keys."""
    sent = 0
    while batch:
        sent += 1
        request = runtime_service_pb2.SubmitBatchRequest(items=[item.request(keyless) for item in batch])
        answers: list[Answer]
        try:
            response = yield Send("SubmitBatch", request, deadline.seconds_left() or 0.001)
            answers = [_answer(result) for result in response.results]
        except PlacetError as error:
            answers = [_own(error, item) for item in batch]
        again: list[_Item] = []
        pause = 0.0
        for item, answer in zip(batch, answers, strict=True):
            item.answer = answer
            seconds = _pause_seconds(item, answer, keyless, sent, deadline, policy)
            if seconds is not None:
                again.append(item)
                pause = max(pause, seconds)
        batch = again
        if batch and pause:
            yield Pause(pause)


def _pause_seconds(
    item: _Item, answer: Answer, keyless: set[str], sent: int, deadline: Deadline, policy: RetryPolicy
) -> float | None:
    """Until it is sent again; None: its answer stands."""
    if isinstance(answer, Submitted | ConflictError):
        return None
    if refuses_key(answer) and item.prepared.key_is_automatic:
        keyless.add(item.prepared.capability)
        return 0.0
    return policy.pause_seconds(answer, sent, deadline.seconds_left())


def _prepare(submission: Submission) -> _Item:
    options = CallOptions(
        version=submission.version,
        key=submission.key,
        attempt_timeout=submission.attempt_timeout,
        on_duplicate=submission.on_duplicate,
        require_durability=submission.require_durability,
        labels=submission.labels,
        session=submission.session,
        on_busy=submission.on_busy,
    )
    place = Place(
        queue=submission.queue,
        priority=submission.priority,
        delay=submission.delay,
        ready_time=submission.ready_time,
    )
    unsent = UnavailableError("it was not sent: the time was over", code="DEADLINE_EXCEEDED")
    item = _Item(prepare_call(submission.capability, submission.input, options), place, unsent)
    # What no request can carry, such as a time without a zone, is found now.
    item.request(set())
    return item


def _batches(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    batch: list[_Item] = []
    size = 0
    for item in items:
        bytes_ = item.prepared.invocation.ByteSize() + 256
        if batch and (len(batch) == ITEMS_MAX or size + bytes_ > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += bytes_
    if batch:
        yield batch


def _answer(result: runtime_service_pb2.SubmitBatchResult) -> Answer:
    if result.HasField("error"):
        return error_of_message(result.error)
    found = result.submitted
    action = action_pb2.Action(action_id=found.action_id, state=found.state, cursor=found.cursor)
    return Submitted.of(action, attached=found.attached)


def _own(error: PlacetError, item: _Item) -> PlacetError:
    """Of a request that failed whole. After a lost reply only the item's own key finds out."""
    if not isinstance(error, TransportError):
        return error
    lost = TransportError(error.message, code=error.code, action_id=error.action_id)
    if item.prepared.key:
        lost.add_note(f"Whether it is stored is not known; its key is {item.prepared.key!r}.")
    return lost
