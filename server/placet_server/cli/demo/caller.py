"""A caller that waits for its answer while the server dies, as any user of the SDK would."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from placet import Client, PlacetError, Result
from placet.status import error_of_action
from placet.v1.action_pb2 import Action

CALL_SECONDS = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One call, with the key that all its repetitions share."""

    effect: str
    capability: str
    input: dict[str, Any]
    key: str

    @property
    def command(self) -> str:
        """As a person would type it."""
        text = json.dumps(self.input)
        return f"placet call {self.capability} '{text}' --key {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a call ended; `effect` and `kind` in the words of the contract."""

    kind: str
    output: Any
    action_id: str
    attempt: int
    attached: bool
    effect: str
    reason: str
    advice: str

    @property
    def text(self) -> str:
        known = ", joined by its key" if self.attached else ""
        if self.kind == "SUCCEEDED":
            return f"SUCCEEDED  {json.dumps(self.output)}\naction {self.action_id}, attempt {self.attempt}{known}"
        told = f", effect {self.effect}" if self.effect else ""
        action = f", action {self.action_id}" if self.action_id else ""
        return f"{self.kind}  {self.reason}{told}, retry advice {self.advice}{action}"

    @property
    def ending(self) -> str:
        """Kind and, where it is not known, the effect."""
        return f"{self.kind}, effect {self.effect}" if self.effect == "UNKNOWN" else self.kind


def ask(client: Client, wish: Wish, seconds: float = CALL_SECONDS) -> Answer:
    """Whatever the end is, it is an answer."""
    try:
        return _success(client.call(wish.capability, wish.input, key=wish.key, timeout=seconds))
    except PlacetError as error:
        return _failure(error)


def answer_of(action: Action) -> Answer:
    """As it stands in the store."""
    error = error_of_action(action)
    return _success(Result.of(action, attached=False)) if error is None else _failure(error)


class Waiting:
    """A call in a thread of its own."""

    def __init__(self, client: Client, wish: Wish) -> None:
        self.wish = wish
        self._client = client
        self._answer: Answer | None = None
        self._error: Exception | None = None
        self._begun = threading.Event()
        run = self._stream if wish.effect == "READ" else self._call
        self._thread = threading.Thread(target=self._run, args=(run,), name=f"caller {wish.key}", daemon=True)
        self._thread.start()

    def wait_until_begun(self, seconds: float) -> bool:
        """A READ has sent a part of its output. Other calls are seen at the provider."""
        return self._begun.wait(seconds)

    def answer(self, seconds: float) -> Answer | None:
        """None if there is none in that time. Raises what kept the caller from one."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self, run: Callable[[], Answer]) -> None:
        try:
            self._answer = run()
        except Exception as error:
            # For whoever asks; after an abort nobody does.
            self._error = error

    def _call(self) -> Answer:
        return ask(self._client, self.wish)

    def _stream(self) -> Answer:
        wish = self.wish
        events = self._client.stream(wish.capability, wish.input, key=wish.key, timeout=CALL_SECONDS)
        try:
            with events:
                for event in events:
                    if event.WhichOneof("event") == "chunk":
                        self._begun.set()
            action = self._client.get(events.action_id)
        except PlacetError as error:
            return _failure(error)
        return answer_of(action)


def _success(result: Result) -> Answer:
    return Answer(
        kind="SUCCEEDED",
        output=result.output,
        action_id=result.action_id,
        attempt=result.action.attempt,
        attached=result.attached,
        effect="DONE",
        reason="",
        advice="",
    )


def _failure(error: PlacetError) -> Answer:
    from placet_server.cli.failure import kind_of

    return Answer(
        kind=kind_of(error),
        output=None,
        action_id=error.action_id,
        attempt=error.outcome.attempt if error.outcome is not None else 0,
        attached=False,
        effect=error.effect,
        reason=error.reason or error.message,
        advice=error.retry_advice,
    )
