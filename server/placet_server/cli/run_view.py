"""A run of an agent at a terminal, while it runs: its answer as it comes, beside it what it calls and waits for, and
what somebody wants who presses Ctrl-C.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from placet_server.cli.escape import escape, escape_block
from placet_server.cli.output import print_line, warn, write

if TYPE_CHECKING:
    from placet import Client, RunEvent, RunStream
    from placet.ask_requests import Reply
    from placet.requests import OnWait
    from placet.v1.action_pb2 import Action


class Left(Exception):
    """Whoever listened has gone, and the run goes on; `action_id` is empty if it was not known yet."""

    def __init__(self, action_id: str) -> None:
        self.action_id = action_id


class RunView:
    """What is told of one run. On a terminal the answer comes on stdout as it is said; anywhere else only what `answer`
    is given goes there, once it is whole. `tells_waits`: at once, as nobody is told at the end. `is_silent`: the answer
    alone.
    """

    def __init__(
        self, client: Client, *, is_json: bool = False, tells_waits: bool = False, is_silent: bool = False
    ) -> None:
        self._client = client
        self._is_json = is_json
        self._is_silent = is_silent
        self._tells_waits = tells_waits and not is_json
        self._is_live = are_terminals("stdout") and not (is_json or is_silent)
        # Of each turn, by which request of it.
        self._said: dict[int, tuple[int, str]] = {}
        self._turn = 0
        self._is_in_line = False
        self._told: set[str] = set()

    def show(self, event: RunEvent) -> None:
        from placet import (
            Restarted,
            TextDelta,
            ToolFinished,
            ToolStarted,
            TurnAnswered,
            TurnFailed,
            Waiting,
        )
        from placet_server.cli.document import document_of

        if self._is_json and not self._is_silent:
            print_line(document_of(event.event))
        if self._is_json or (self._is_silent and not isinstance(event, Waiting)):
            return
        match event:
            case TextDelta(turn=turn, text=text):
                self._say(turn, event.event.delta.request, text)
            case Restarted(turn=turn):
                self._void(turn)
            case TurnAnswered():
                self._tell_unmade(event)
            case TurnFailed(turn=turn, category=category):
                self._beside(f"turn {turn} has no answer: {category}")
            case ToolStarted(tool=tool, action_id=action_id, waiting=waiting):
                self._beside(f"{tool}  {action_id}{'  waits for people' if waiting else ''}")
                if waiting:
                    self._look_for_waits(action_id)
            case ToolFinished(tool=tool):
                self._beside(f"{tool}  {_ending(event)}")
            case Waiting():
                self._look_for_waits(event.event.action_id)
            case _:
                pass

    def answer(self, text: str) -> None:
        """All of it, unless it stands there already."""
        is_said = self._is_live and self._said.get(self._turn, (0, ""))[1] == text
        self._end_line()
        if not is_said:
            write(escape_block(text) + "\n")

    def warn(self, text: str) -> None:
        self._end_line()
        warn(text)

    def tell_waits(self, waits: Iterable[Any]) -> None:
        """What people are asked, each once, with the command that decides it."""
        from placet_server.cli.document import document_of
        from placet_server.cli.wait import wait_lines

        if not self._tells_waits:
            return
        new = [document_of(wait) for wait in waits if wait.approval_id not in self._told]
        self._told |= {wait["approval_id"] for wait in new}
        for line in wait_lines(new):
            self.warn(f"  {line}")

    def _say(self, turn: int, request: int, text: str) -> None:
        known, said = self._said.get(turn, (request, ""))
        if request > known:
            # Who has joined in between is not told of what was asked before.
            self._void(turn)
            said = ""
        if turn != self._turn:
            self._end_line()
        self._turn = turn
        self._said[turn] = (request, said + text)
        if self._is_live:
            write(escape_block(text))
            self._is_in_line = not text.endswith("\n")

    def _tell_unmade(self, event: RunEvent) -> None:
        """Of what the model called and nobody will run, but for what ended the run."""
        from placet_server.cli.document import document_of
        from placet_server.cli.tree import why_not_made

        for call in document_of(event.event)["turn_answered"]["calls"]:
            if call["problem"] not in ("", "ANSWER_FINAL", "TAKEN_AS_ANSWER"):
                self._beside(f"{call['tool']}  {why_not_made(call)}")

    def _void(self, turn: int) -> None:
        if self._said.pop(turn, None):
            self._beside(f"turn {turn} is asked for again: what it has said is void")

    def _beside(self, text: str) -> None:
        self.warn(f"  {escape(text)}")

    def _end_line(self) -> None:
        if self._is_in_line:
            write("\n")
            self._is_in_line = False

    def _look_for_waits(self, action_id: str) -> None:
        from placet.errors import PlacetError

        if not self._tells_waits:
            return
        try:
            waits = self._client.get(action_id).outcome.waits
        except PlacetError as error:
            self._beside(f"what it waits for cannot be read: {error}")
            return
        self.tell_waits(waits)


class Listening:
    """To one run, over as many streams as Ctrl-C makes of it."""

    def __init__(self, client: Client, view: RunView, *, seconds: float, on_wait: OnWait) -> None:
        self._client = client
        self._view = view
        self._until = time.monotonic() + seconds
        self._on_wait: OnWait = on_wait

    def reply_of(self, run: RunStream, *, is_joined: bool = False) -> Reply:
        """Its answer, once it is over; closes it. `is_joined`: somebody has answered for it already, so silence means
        that it takes its time. Raises Left, and what `ask` raises.
        """
        events: Iterator[RunEvent] = run if is_joined else self._begun(run)
        while True:
            try:
                with run:
                    for event in events:
                        self._view.show(event)
                    return run.reply()
            except KeyboardInterrupt:
                self._decide(run.action_id)
            events = run = self._client.run_stream(
                run.action_id, after=run.cursor, on_wait=self._on_wait, timeout=self._left()
            )

    def joined(self, action: Action, after: str | None = None) -> Reply:
        """Of a run that exists, after a cursor of it, by default where it stands, with what it waits for by then; as
        `reply_of`."""
        self._view.tell_waits(action.outcome.waits)
        run = self._client.run_stream(
            action.action_id,
            after=action.cursor if after is None else after,
            on_wait=self._on_wait,
            timeout=self._left(),
        )
        return self.reply_of(run, is_joined=True)

    def _begun(self, run: RunStream) -> Iterator[RunEvent]:
        from placet_server.cli.call import patience

        with patience(self._left()):
            first = next(run, None)
        if first is not None:
            yield first
            yield from run

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 1.0)

    def _decide(self, action_id: str) -> None:
        """Returns if they want to go on listening, for a cancel too. Raises Left."""
        if not (action_id and are_terminals("stdin", "stderr")):
            self._leave(action_id)
        self._view.warn("\nthe run goes on: d leaves it so, c cancels it, enter listens on")
        try:
            wanted = input("> ").strip().lower()
        except (KeyboardInterrupt, EOFError):
            self._leave(action_id)
        if wanted.startswith("d"):
            self._leave(action_id)
        if wanted.startswith("c"):
            self._client.cancel(action_id, "cancelled by who asked")

    def _leave(self, action_id: str) -> NoReturn:
        if action_id:
            self._view.warn(f"the run goes on: placet resume {action_id}")
        raise Left(action_id)


def are_terminals(*names: str) -> bool:
    """Of our standard streams."""
    return all(getattr(sys, name).isatty() for name in names)


def _ending(event: RunEvent) -> str:
    from placet_server.cli.document import document_of

    outcome = document_of(event.event)["tool_finished"]["outcome"]
    return "  ".join(part for part in (outcome["kind"], outcome["reason"], outcome["failure_code"]) if part)
