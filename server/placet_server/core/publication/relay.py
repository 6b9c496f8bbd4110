"""News between processes. All of it is a hint: whoever hears it looks into the store, and looks there anyway now and
then.

Only what somebody elsewhere waits for is told. Whoever waits here for an action that does not run here says so
(`want`); the process that moves the action finds it among `wanted_elsewhere` and tells. So an action that nobody else
waits for costs a look into a dictionary that is empty, and a process that is alone tells nothing at all.

What the listener takes was kept since the last time, each word once, however often it was said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import TypeVar

from placet_server.core.publication.notice import Notice
from placet_server.model.line import Line

Word = TypeVar("Word")

WORDS_MAX = 4096
WANTED_MAX = 16_384
# A wish is told again after so long, and kept for longer than that.
WISH_SECONDS = 10.0
WISH_KEPT_SECONDS = 25.0
# What had work while nobody else was there is told to whoever turns out to have come meanwhile. Longer than from one
# look round to the next: who comes after that finds the work in the store as it begins.
ALONE_KEPT_SECONDS = 5.0


class Relay:
    """Belongs to one event loop. `has_others`: whether anybody could hear it. `is_here`: whether an action runs in this
    process, which then need not be told of it."""

    def __init__(self) -> None:
        self.has_others = False
        self.is_here: Callable[[str], bool] = lambda _: False
        self.wanted_elsewhere: dict[str, float] = {}
        self._wished: dict[str, float] = {}
        self._alone: dict[Line, float] = {}
        self._lines: set[Line] = set()
        self._news: set[str] = set()
        self._wanted: set[str] = set()
        self._cancelled: set[str] = set()
        self._told = asyncio.Event()

    def line(self, line: Line) -> None:
        """It has work. The action is in the store."""
        if self.has_others:
            self._tell(self._lines, line)
        elif self._alone.pop(line, None) is not None or len(self._alone) < WORDS_MAX:
            self._alone[line] = time.monotonic()

    def news(self, action_id: str) -> None:
        """It has moved, and that is in the store."""
        self._tell(self._news, action_id)

    def cancelled(self, action_id: str) -> None:
        """It is to stop, and the mark is in the store."""
        self._tell(self._cancelled, action_id)

    def want(self, action_id: str) -> None:
        """Somebody waits here for its news."""
        if not self.has_others or action_id in self._wished or self.is_here(action_id):
            return
        if len(self._wished) < WANTED_MAX:
            self._wished[action_id] = time.monotonic()
            self._tell(self._wanted, action_id)

    def take(self) -> Notice:
        """What is to be told."""
        self._told.clear()
        notice = Notice(
            lines=tuple(self._lines),
            news=tuple(self._news),
            wanted=tuple(self._wanted),
            cancelled=tuple(self._cancelled),
        )
        for words in (self._lines, self._news, self._wanted, self._cancelled):
            words.clear()
        return notice

    def put_back(self, notice: Notice) -> None:
        """Of `take`: it could not be told."""
        _fill(self._lines, notice.lines)
        _fill(self._news, notice.news)
        _fill(self._wanted, notice.wanted)
        _fill(self._cancelled, notice.cancelled)

    async def wait(self, seconds: float) -> None:
        """Until there is something to tell, or `stir`, or so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._told.wait()
        except TimeoutError:
            return

    def stir(self) -> None:
        self._told.set()

    def note_wanted(self, action_ids: tuple[str, ...]) -> None:
        """Others wait for news of these."""
        now = time.monotonic()
        for action_id in action_ids:
            self.wanted_elsewhere.pop(action_id, None)
            if len(self.wanted_elsewhere) < WANTED_MAX:
                self.wanted_elsewhere[action_id] = now

    def meet(self) -> None:
        """There are others."""
        self.has_others = True
        for line in self._alone:
            self._tell(self._lines, line)
        self._alone.clear()

    def forget_wishes(self) -> None:
        """Somebody is new, and is to be told again what is waited for here."""
        self._wished.clear()

    def look_round(self, has_others: bool) -> None:
        """Forget what is over. The dictionaries are in the order of their times."""
        if has_others:
            self.meet()
        else:
            self.has_others = False
            self.wanted_elsewhere.clear()
        _forget(self._alone, ALONE_KEPT_SECONDS)
        _forget(self._wished, WISH_SECONDS)
        _forget(self.wanted_elsewhere, WISH_KEPT_SECONDS)

    def _tell(self, words: set[Word], word: Word) -> None:
        if self.has_others and len(words) < WORDS_MAX:
            words.add(word)
            self._told.set()


def _forget(times: dict[Word, float], kept_seconds: float) -> None:
    """What is older."""
    since = time.monotonic() - kept_seconds
    for word, _ in list(takewhile(lambda item: item[1] <= since, times.items())):
        del times[word]


def _fill(words: set[Word], more: Iterable[Word]) -> None:
    words.update(islice(more, max(0, WORDS_MAX - len(words))))
