"""A run of an agent at a terminal, while it runs: its answer as it comes, beside it what it calls and waits for, and
what somebody wants who presses Ctrl-C.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from placet_server.cli.escape import escape, escape_block
from placet_server.cli.output import print_line, warn, write

if TYPE_CHECKING:
    from placet import Client, RunEvent, RunStream
    from placet.ask_requests import Reply
    from placet.requests import OnWait


class Left(Exception):
    """Whoever listened has gone, and the run goes on; `action_id` is empty if it was not known yet."""

    def __init__(self, action_id: str) -> None:
        self.action_id = action_id


class RunView:
    """What is told of one run. On a terminal the answer comes on stdout as it is said; anywhere else only what `answer`
    is given goes there, once it is whole. `tells_waits`: at once, as nobody is told at the end.
    """

    def __init__(self, client: Client, *, is_json: bool = False, tells_waits: bool = False) -> None:
        self._client = client
        self._is_json = is_json
        self._tells_waits = tells_waits
        self._is_live = are_terminals("stdout") and not is_json
        self._said: dict[int, str] = {}
        self._turn = 0
        self._is_in_line = False
        self._told: set[str] = set()

    def show(self, event: RunEvent) -> None:
        from placet import Restarted, TextDelta, ToolFinished, ToolStarted, TurnFailed, Waiting
        from placet_server.cli.document import document_of

        if self._is_json:
            print_line(document_of(event.event))
            return
        match event:
            case TextDelta(turn=turn, text=text):
                self._say(turn, text)
            case Restarted(turn=turn) if self._said.pop(turn, ""):
                self._beside(f"turn {turn} is asked for again: what it has said is void")
            case TurnFailed(turn=turn, category=category):
                self._beside(f"turn {turn} has no answer: {category}")
            case ToolStarted(tool=tool, action_id=action_id, waiting=waiting):
                self._beside(f"{tool}  {action_id}{'  waits for people' if waiting else ''}")
                self._tell_waits(action_id, waiting=waiting)
            case ToolFinished(tool=tool):
                self._beside(f"{tool}  {_ending(event)}")
            case Waiting():
                self._tell_waits(event.event.action_id, waiting=True)
            case _:
                pass

    def answer(self, text: str) -> None:
        """All of it, unless it stands there already."""
        is_said = self._is_live and self._said.get(self._turn) == text
        self._end_line()
        if not is_said:
            write(escape_block(text) + "\n")

    def warn(self, text: str) -> None:
        self._end_line()
        warn(text)

    def _say(self, turn: int, text: str) -> None:
        if turn != self._turn:
            self._end_line()
        self._turn = turn
        self._said[turn] = self._said.get(turn, "") + text
        if self._is_live:
            write(escape_block(text))
            self._is_in_line = not text.endswith("\n")

    def _beside(self, text: str) -> None:
        self.warn(f"  {escape(text)}")

    def _end_line(self) -> None:
        if self._is_in_line:
            write("\n")
            self._is_in_line = False

    def _tell_waits(self, action_id: str, *, waiting: bool) -> None:
        """Of each once, with the command that decides it."""
        from placet.errors import PlacetError
        from placet_server.cli.document import document_of
        from placet_server.cli.wait import wait_lines

        if not (waiting and self._tells_waits):
            return
        try:
            waits = self._client.get(action_id).outcome.waits
        except PlacetError as error:
            self._beside(f"what it waits for cannot be read: {error}")
            return
        new = [document_of(wait) for wait in waits if wait.approval_id not in self._told]
        self._told |= {wait["approval_id"] for wait in new}
        for line in wait_lines(new):
            self.warn(f"  {line}")


class Listening:
    """To one run, over as many streams as Ctrl-C makes of it."""

    def __init__(self, client: Client, view: RunView, *, seconds: float, on_wait: OnWait) -> None:
        self._client = client
        self._view = view
        self._until = time.monotonic() + seconds
        self._on_wait: OnWait = on_wait

    def reply_of(self, run: RunStream, events: Iterator[RunEvent]) -> Reply:
        """Raises Left, and what `ask` raises."""
        while True:
            try:
                for event in events:
                    self._view.show(event)
                return run.reply()
            except KeyboardInterrupt:
                run.close()
                self._decide(run.action_id)
                left = max(self._until - time.monotonic(), 1.0)
                run = self._client.run_stream(
                    run.action_id, after=run.cursor, on_wait=self._on_wait, timeout=left
                )
                events = run

    def _decide(self, action_id: str) -> None:
        """Returns if they want to go on listening, for a cancel too. Raises Left."""
        if not (action_id and are_terminals("stdin", "stderr")):
            raise Left(action_id)
        self._view.warn("\nthe run goes on: d leaves it so, c cancels it, enter listens on")
        try:
            wanted = input("> ").strip().lower()
        except (KeyboardInterrupt, EOFError):
            raise Left(action_id) from None
        if wanted.startswith("d"):
            raise Left(action_id)
        if wanted.startswith("c"):
            self._client.cancel(action_id, "cancelled by who asked")


def are_terminals(*names: str) -> bool:
    """Of our standard streams."""
    return all(getattr(sys, name).isatty() for name in names)


def first_of(run: RunStream) -> Iterator[RunEvent]:
    """All its events; returns once the first is there."""
    return chain([event for event in (next(run, None),) if event is not None], run)


def _ending(event: RunEvent) -> str:
    from placet_server.cli.document import document_of

    outcome = document_of(event.event)["tool_finished"]["outcome"]
    return "  ".join(part for part in (outcome["kind"], outcome["reason"]) if part)
