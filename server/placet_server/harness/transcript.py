"""What the entries of a run amount to; `replay.py` says what each of them adds.

What is to be done next follows from the last entry alone:

    nothing              open
    opened, told         ask          (a new turn)
    requested            ask again    (somebody may have asked, and nobody has the answer)
    answered             make calls | tell results | repair | sum up | end
    failed               ask again    (a further try; or, if it was too long, for a summary of what there is)
    compacted            ask
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from placet_server.harness.budget import (
    bytes_of,
    credit_results,
    reserve_for,
)
from placet_server.harness.clip import clipped
from placet_server.harness.plan import Plan, plan_of
from placet_server.model.entry import (
    Answered,
    Compacted,
    EqualCalls,
    Failed,
    Opened,
    Purpose,
    Requested,
    Told,
)
from placet_server.model.usage import Counters, Price, Reserve, Spent


class Stage(StrEnum):
    """What is to be done next. The last three are ends."""

    OPEN = "open"
    ASK = "ask"
    CALL = "call"
    COMPACT = "compact"
    DONE = "done"
    SPENT = "spent"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """`ordinal`: of the newest entry. `turn`: the newest one that was asked for, `tries` how often, `asked` the last
    request of it; `answer` and `failure`: what came of that, if anything did. `repairs`: answers so far that the run
    could not end with. `compacted`: the ordinal of the entry that a replay begins with. `measured_tokens`: what the
    context held at the last answer whose provider said it, `unmeasured_bytes` what has come to it since. `history`:
    what was said in its session before the run, which what was compacted already holds; `history_answers`: which of
    that is the model's, from 0; `history_bytes`: what had to be read for it. `answered_at`: which of `told` are
    answers, from 0, `asked_at` which of them is what was asked of it. `is_fresh`: it was compacted, and nothing was
    answered since.
    """

    opened: Opened | None = None
    ordinal: int = 0
    counters: Counters = field(default_factory=Counters)
    turn: int = 0
    tries: int = 0
    asked: Requested | None = None
    answer: Answered | None = None
    failure: Failed | None = None
    repairs: int = 0
    compacted: int = 0
    equal: tuple[tuple[str, int], ...] = ()
    told: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    history_answers: tuple[int, ...] = ()
    history_bytes: int = 0
    measured_tokens: int = 0
    unmeasured_bytes: int = 0
    answered_at: tuple[int, ...] = ()
    asked_at: int = 0
    is_fresh: bool = False

    @property
    def stage(self) -> Stage:
        if self.opened is None:
            return Stage.OPEN
        answer = self.answer
        if answer is None:
            return Stage.ASK
        if answer.output is not None:
            return Stage.DONE
        if answer.spent is not None:
            return Stage.SPENT
        if self.asked is not None and self.asked.purpose is Purpose.COMPACT:
            return Stage.COMPACT
        if answer.invalid and self.repairs > self.opened.output_repairs_max:
            return Stage.INVALID
        return Stage.CALL if answer.calls else Stage.ASK

    @property
    def pending(self) -> Plan | None:
        """The calls whose results the model has not been told."""
        if self.opened is None or self.answer is None or self.stage is not Stage.CALL:
            return None
        return plan_of(self.answer, self.opened)

    @property
    def output(self) -> str | None:
        return None if self.answer is None else self.answer.output

    @property
    def spent(self) -> Spent | None:
        return None if self.answer is None else self.answer.spent

    @property
    def repair(self) -> str:
        """What the model is told in words of an answer that the run cannot end with."""
        return "" if self.answer is None else self.answer.repair

    @property
    def next_request(self) -> tuple[int, int]:
        """Turn and number of the try."""
        is_over = self.answer is not None or self.asked is None
        return (self.turn + 1, 1) if is_over else (self.turn, self.tries + 1)

    def reserve(self, messages: Sequence[str], price: Price | None) -> Reserve:
        """What the next request may spend, with these messages. A further try is charged as the one before it."""
        assert self.opened is not None
        if self.asked is not None and self.answer is None:
            return self.asked.reserve
        max_tokens = self.opened.settings.max_tokens
        return reserve_for(self.measured_tokens, self._unmeasured(messages), max_tokens, price)

    def held_tokens(self, messages: Sequence[str]) -> int:
        """About how many the next request holds, with these messages."""
        return reserve_for(self.measured_tokens, self._unmeasured(messages), 0, None).tokens

    def _unmeasured(self, messages: Sequence[str]) -> int:
        new = self.unmeasured_bytes + bytes_of(messages)
        return new if self.measured_tokens else new + bytes_of(self.before) + self.fixed_bytes

    @property
    def fixed_bytes(self) -> int:
        """Of what every request holds."""
        if self.opened is None:
            return 0
        tools = [text for tool in self.opened.tools for text in (tool.description, tool.input_schema)]
        return bytes_of([self.opened.instructions, *tools])

    @property
    def before(self) -> tuple[str, ...]:
        """Of the session, as it is still told."""
        return () if self.compacted else self.history

    def messages(self) -> list[str]:
        """What the model is asked with: all that it has been told, and has said, in order; or what of it is to be
        summed up.
        """
        everything = [*self.before, *self.told]
        if self.asked is not None and self.asked.purpose is Purpose.COMPACT:
            part, clip = everything[: self.summed], self.asked.clip
            return [*(clipped(part, clip) if clip else part), *self.asked.messages]
        return everything

    @property
    def answers(self) -> tuple[int, ...]:
        """Which of `before` and `told`, one after the other, are the model's."""
        past = () if self.compacted else self.history_answers
        return (*past, *(len(self.before) + place for place in self.answered_at))

    @property
    def summed(self) -> int:
        """How many of `before` and `told`, one after the other, the newest request is to sum up."""
        if self.asked is None:
            return 0
        past = len(self.before) if self.asked.past is None else self.asked.past
        return past + self.asked.summed

    def told_of(self, results: Sequence[Told]) -> Counters:
        """What it has spent, with what these say of delegates."""
        shares = {} if self.answer is None else {call.call: call.reserve for call in self.answer.calls}
        return credit_results(self.counters, shares, results)

    def equal_calls(self) -> dict[str, int]:
        return dict(self.equal)

    def is_active(self, milliseconds: int) -> Self:
        """So long something of the run has run, in all: no entry says it, as no two runs would be alike."""
        return replace(self, counters=replace(self.counters, active_ms=milliseconds))

    def compaction(
        self, messages: Sequence[str], answers: Sequence[int] = (), asked_at: int = 0
    ) -> Compacted:
        """The entry by which these messages stand for all so far; `answers`, `asked_at`: see there."""
        return Compacted(
            turn=self.turn,
            through=self.ordinal,
            turns=self.turn,
            counters=replace(self.counters, active_ms=0),
            repairs=self.repairs,
            equal=tuple(EqualCalls(digest=digest, count=count) for digest, count in self.equal),
            answers=tuple(answers),
            asked_at=asked_at,
            messages=tuple(messages),
        )
