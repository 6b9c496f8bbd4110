"""Follows the events of one action over as many streams as it takes, without loss or duplicates. Pure.

Every event carries the cursor after it, so a broken stream goes on with WatchAction after the newest cursor; a
stream that broke before its first event is sent again as it was. So is one whose action waits to be repeated:
watching runs nothing, unless the action was submitted, which a server runs again by itself. That replays the history,
so events are counted too, and none is delivered twice.

An end may be followed by another life, if an operator wills it. So a watch is read until the server ends it.
"""

from __future__ import annotations

import json

from placet.context import Json
from placet.errors import SAME_KEY, PendingError, PlacetError, TransportError, UnavailableError
from placet.requests import PreparedCall, get_request
from placet.retry import Deadline, RetryPolicy
from placet.status import error_of_action, error_of_outcome
from placet.steps import SEND_SECONDS_MIN, Pause, Send, Steps, look_up, refuses_key
from placet.v1 import event_pb2, outcome_pb2, runtime_service_pb2

# A watch is renewed this often, so that a connection that died silently is noticed.
WATCH_SECONDS_MAX = 600.0
# They have a number within the attempt that they name.
_LANE = frozenset({"chunk", "delta", "tool_started", "tool_finished"})


class Follower:
    """One use: `opening` says what to open, `take` filters messages until `enough`, `ended` says what comes then.

    `prepared` runs an invocation; without it an action that exists is watched. `action_id`, `cursor` and `output`
    stand as far as events were taken.
    """

    def __init__(
        self,
        deadline: Deadline,
        policy: RetryPolicy,
        *,
        prepared: PreparedCall | None = None,
        keyless: set[str] | None = None,
        action_id: str = "",
        cursor: str = "",
    ) -> None:
        self.action_id = action_id
        self.cursor = cursor
        self.output: Json = None
        self._deadline = deadline
        self._policy = policy
        self._prepared = prepared
        self._keyless = set() if keyless is None else keyless
        self._sequence = 0
        self._position = (1, 0)
        self._stream_attempt = 1
        self._failures = 0
        self._watching = False
        self._is_told = False
        self._is_queued = False
        self._is_submitted = False
        self._is_settled = False
        self._is_waiting = False
        self._outcome: outcome_pb2.Outcome | None = None
        self._finished = False

    def opening(self) -> Send:
        """The stream to open next."""
        self._is_told = False
        self._watching = self._prepared is None or (self.action_id != "" and not self._is_queued)
        self._stream_attempt = self._position[0] if self._watching else 1
        if self._prepared is not None and not self._watching:
            if self._prepared.key_is_automatic and self._prepared.capability in self._keyless:
                self._prepared = self._prepared.without_key()
            request = self._prepared.stream_request()
            return Send("ExecuteStream", request, self._seconds(), self._prepared.metadata)
        watch = runtime_service_pb2.WatchActionRequest(action_id=self.action_id, after_cursor=self.cursor)
        return Send("WatchAction", watch, min(self._seconds(), WATCH_SECONDS_MAX))

    def take(self, event: event_pb2.ActionEvent) -> event_pb2.ActionEvent | None:
        """The event, or None for an idle checkpoint and for what was delivered before."""
        self._failures = 0
        self.action_id = event.action_id or self.action_id
        self.cursor = event.cursor or self.cursor
        kind = event.WhichOneof("event")
        if kind is None and not event.type:
            # History is over; of an ambiguous action nothing more may come for days.
            self._finished = self._prepared is not None and self._outcome is not None
            return None
        self._is_told = True
        if self._is_repeated(event, kind):
            return None
        if kind == "settled":
            self._outcome, self._finished, self._is_queued = event.settled.outcome, True, False
            self._is_settled = True
            self.output = json.loads(event.settled.output_json) if event.settled.output_json else None
        elif kind == "ambiguous":
            self._outcome, self._is_queued = event.ambiguous.outcome, False
            self._finished = self._prepared is not None and not event.replayed
        elif kind in ("requeued", "attempt_started", "redriven"):
            self._outcome, self._finished, self._is_settled, self.output = None, False, False, None
            self._is_submitted = self._is_submitted or kind == "redriven"
            self._is_queued = kind == "requeued" and not self._is_submitted
            self._is_waiting = self._is_waiting and kind != "requeued"
        elif kind in ("waiting", "parked"):
            # Of one that is parked, only the status says whether it is for people.
            self._is_waiting = True
            # What the caller is told then is the status of an invocation: without a key there is none to send again.
            asks = self._prepared is not None and self._prepared.key != "" and not self._prepared.holds
            self._is_queued = asks
        elif kind == "approval_decided" and event.approval_decided.completes:
            self._is_waiting = self._is_queued = False
        elif kind == "admitted":
            self._is_submitted = event.admitted.queue != ""
        return event

    @property
    def enough(self) -> bool:
        """Leave this stream now. One that invoked is read to its status, which says more than the last event."""
        if not self._watching or self._prepared is None or self._is_settled:
            return False
        return self._finished or self._is_queued

    def ended(self, error: PlacetError | None) -> Steps[bool]:
        """After a stream: True when all is said, False when another is to be opened. Raises what a call would have
        raised."""
        if (
            error is not None
            and refuses_key(error)
            and self._prepared is not None
            and self._prepared.key_is_automatic
        ):
            self._keyless.add(self._prepared.capability)
            return False
        if error is not None and not isinstance(error, TransportError) and not self._is_passing(error):
            raise error
        if self._finished and self._outcome is not None:
            self._raise_unless_succeeded(self._outcome)
            return True
        if error is None and self._is_waiting and not self._watching and self._returns_waiting():
            return True
        if error is None and self._prepared is None and not self._is_told:
            # The action ended before the cursor.
            return True
        self._failures += 1
        pause = self._pause(error)
        if pause is None:
            yield from self._give_up(error)
            return True
        if pause > 0:
            yield Pause(pause)
        return False

    def _returns_waiting(self) -> bool:
        return self._prepared is not None and self._prepared.returns_waiting

    def _is_repeated(self, event: event_pb2.ActionEvent, kind: str | None) -> bool:
        if kind == "attempt_started":
            self._stream_attempt = event.attempt_started.attempt
        if event.sequence:
            repeated = event.sequence <= self._sequence
            self._sequence = max(event.sequence, self._sequence)
            return repeated
        if kind in _LANE:
            said = getattr(event, kind)
            self._stream_attempt = said.attempt
            position = (said.attempt, said.number)
        elif kind == "progress":
            position = (self._stream_attempt, event.progress.number)
        else:
            return False
        if position <= self._position:
            return True
        self._position = position
        return False

    def _is_passing(self, error: PlacetError) -> bool:
        """The server has something against this stream, not an answer about the action."""
        if isinstance(error, PendingError) and self._prepared is None:
            return self._deadline.working_seconds_left() > 0
        if error.retry_advice != SAME_KEY:
            return False
        # A recorded failure is repeated as a new action, so only while nobody has seen an event of this one.
        return isinstance(error, UnavailableError | PendingError) or not self.action_id

    def _pause(self, error: PlacetError | None) -> float | None:
        left = self._deadline.working_seconds_left()
        renewed = isinstance(error, PendingError) or (
            isinstance(error, TransportError) and error.code == "DEADLINE_EXCEEDED" and self._prepared is None
        )
        if error is None or renewed:
            # A stream that ends well without the end of the action was closed for its age.
            pause = 0.0 if self._failures == 1 else self._policy.backoff_seconds(self._failures)
            return pause if left > pause else None
        return self._policy.pause_seconds(error, self._failures, left)

    def _give_up(self, error: PlacetError | None) -> Steps[None]:
        lost = error if isinstance(error, TransportError) else None
        if error is not None and lost is None:
            raise error
        lost = lost or TransportError("the stream ended before the action did", code="UNAVAILABLE")
        lost.action_id = lost.action_id or self.action_id
        if self._prepared is None:
            raise lost
        if not self.action_id:
            if not self._prepared.key:
                raise lost
            result = yield from look_up(self._prepared, lost, self._deadline)
            self.action_id, self.output = result.action_id, result.output
            return
        try:
            seconds = max(self._deadline.seconds_left(), SEND_SECONDS_MIN)
            response = yield Send("GetAction", get_request(self.action_id), seconds)
        except PlacetError as unknown:
            lost.add_note(f"Asking for the action failed too: {unknown}")
            raise lost from None
        ended = error_of_action(response.action)
        if ended is not None:
            raise ended from lost
        # It succeeded, but events are missing: `watch` after `cursor` has them.
        self.output = json.loads(response.action.output_json)

    def _raise_unless_succeeded(self, outcome: outcome_pb2.Outcome) -> None:
        # A watcher is told the ending by its event; only whoever invoked is owed the exception.
        ended = error_of_outcome(outcome, self.action_id) if self._prepared is not None else None
        if ended is not None:
            raise ended

    def _seconds(self) -> float:
        return min(max(self._deadline.working_seconds_left(), SEND_SECONDS_MIN), 86_400.0)
