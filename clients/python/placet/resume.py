"""Going on with an action by its id, over as many calls or streams as it takes. Pure.

Asking again is always safe: what runs is joined, what ended is told. Streams go on after the newest cursor.
"""

from __future__ import annotations

import json

from placet.context import Json
from placet.errors import PendingError, PlacetError
from placet.requests import OnWait, resume_action_request, resume_stream_request
from placet.result import Result
from placet.retry import Deadline, RetryPolicy
from placet.steps import SEND_SECONDS_MIN, Pause, Send, Steps
from placet.v1 import event_pb2


def resume(action_id: str, on_wait: OnWait | None, deadline: Deadline, policy: RetryPolicy) -> Steps[Result]:
    """ResumeAction until there is an answer, or no time for another try."""
    request = resume_action_request(action_id, on_wait)
    sent = 0
    while True:
        sent += 1
        try:
            response = yield Send("ResumeAction", request, _working(deadline))
            return Result.of(response.action, attached=True)
        except PlacetError as error:
            pause = _pause(error, sent, deadline, policy)
        yield Pause(pause)


class ResumeFollower:
    """One use, as `placet.follow.Follower`."""

    enough = False

    def __init__(
        self,
        deadline: Deadline,
        policy: RetryPolicy,
        *,
        action_id: str,
        cursor: str,
        on_wait: OnWait | None = None,
    ) -> None:
        self.action_id = action_id
        self.cursor = cursor
        self.on_wait = on_wait
        self.output: Json = None
        self._deadline = deadline
        self._policy = policy
        self._failures = 0

    def opening(self) -> Send:
        """The stream to open next."""
        request = resume_stream_request(self.action_id, self.cursor, self.on_wait)
        return Send("ResumeActionStream", request, min(_working(self._deadline), 86_400.0))

    def take(self, event: event_pb2.ActionEvent) -> event_pb2.ActionEvent | None:
        """The event, or None for a checkpoint."""
        self._failures = 0
        self.cursor = event.cursor
        kind = event.WhichOneof("event")
        if kind == "settled":
            text = event.settled.output_json
            self.output = json.loads(text) if text else None
        elif kind is not None and event.sequence:
            self.output = None
        return event if event.type or kind else None

    def ended(self, error: PlacetError | None) -> Steps[bool]:
        """After a stream: True when all is said, False when another is to be opened. Raises what a call would have
        raised."""
        if error is None:
            return True
        self._failures += 1
        yield Pause(_pause(error, self._failures, self._deadline, self._policy))
        return False


def _pause(error: PlacetError, sent: int, deadline: Deadline, policy: RetryPolicy) -> float:
    """Before asking again. Raises the error where that changes nothing, or no time is left: what the action ended with
    is an answer, also where a new action might fare better."""
    is_ending = error.outcome is not None and not isinstance(error, PendingError)
    pause = None if is_ending else policy.pause_seconds(error, sent, deadline.working_seconds_left())
    if pause is None:
        raise error
    return pause


def _working(deadline: Deadline) -> float:
    return max(deadline.working_seconds_left(), SEND_SECONDS_MIN)
