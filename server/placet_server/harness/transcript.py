"""What the entries of a run amount to. A run that goes on and a run that is read again take the same step for each
entry, `next`, from the text of the entry: so they cannot differ.

What is to be done next follows from the last entry alone:

    nothing              open
    opened, told         ask          (a new turn)
    requested            ask again    (somebody may have asked, and nobody has the answer)
    answered             make calls | tell results | repair | sum up | end
    failed               ask again    (a further try; or, if it was too long, for a summary of what there is)
    compacted            ask
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self, assert_never

from placet_server.harness.budget import (
    bytes_of,
    charge_request,
    credit_answer,
    credit_failure,
    credit_results,
    reserve_for,
)
from placet_server.harness.clip import clipped
from placet_server.harness.plan import Plan, equality, plan_of
from placet_server.model.entry import (
    Answered,
    Body,
    Compacted,
    Entry,
    EntryRow,
    EqualCalls,
    Failed,
    Opened,
    Purpose,
    Requested,
    Told,
    TurnProblem,
)
from placet_server.model.entry_text import EntryRefused, of_text
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


class JournalBroken(Exception):
    """Entries that no run of ours writes, or not in this order."""


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
        if self.opened is None:
            raise JournalBroken("nothing is asked for before the run has opened")
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

    def next(self, entry: Entry) -> Self:
        """Raises EntryRefused, JournalBroken."""
        body = of_text(entry.type, entry.body)
        after = self._after(body)
        ordinal = entry.ordinal if isinstance(entry, EntryRow) else self.ordinal + 1
        if isinstance(body, Compacted):
            after = replace(after, compacted=ordinal)
        return replace(after, ordinal=ordinal)

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

    def _after(self, body: Body) -> Self:
        match body:
            case Opened():
                self._check(self.opened is None, body)
                return replace(self, opened=body)
            case Requested():
                return self._requested(body)
            case Answered():
                return self._answered(body)
            case Failed():
                self._check(self._is_asked(body.turn) and body.number == self.tries, body)
                assert self.asked is not None
                return replace(self, failure=body, counters=credit_failure(self.counters, self.asked, body))
            case Compacted():
                return self._compacted(body)
            case _:
                assert_never(body)

    def _requested(self, body: Requested) -> Self:
        self._check(self.opened is not None, body)
        self._check(self.stage in (Stage.ASK, Stage.CALL), body)
        self._check(self._is_next(body), body)
        self._check(not (body.number > 1 and (body.messages or body.results)), body)
        pending = self.pending
        self._check(
            [told.call for told in body.results]
            == ([call.call for call in pending.calls] if pending else []),
            body,
        )
        counters = self.told_of(body.results)
        asked, added = replace(body, messages=()), body.messages
        if body.number > 1 and self.asked is not None:
            # A further try is for what the first one was for.
            first = self.asked
            asked = replace(
                asked,
                purpose=first.purpose,
                summed=first.summed,
                past=first.past,
                clip=first.clip,
                messages=first.messages,
            )
        elif body.purpose is Purpose.COMPACT:
            self._check(bool(body.messages) and body.summed < len(self.told) + len(body.messages), body)
            asked, added = replace(asked, messages=body.messages[-1:]), body.messages[:-1]
        return replace(
            self,
            counters=charge_request(counters, body),
            turn=body.turn,
            tries=body.number,
            asked=asked,
            answer=None,
            failure=None,
            told=(*self.told, *added),
            unmeasured_bytes=self.unmeasured_bytes + bytes_of(added),
        )

    def _is_next(self, body: Requested) -> bool:
        if body.purpose is Purpose.COMPACT and body.number == 1 and self.failure is not None:
            # What did not fit is not asked for again before it was summed up, nor for a summary of as much.
            return (
                self.failure.category is TurnProblem.CONTEXT_TOO_LONG
                and self.asked is not None
                and (self.asked.purpose is not Purpose.COMPACT or self._is_less(body))
                and body.turn == self.turn + 1
            )
        return (body.turn, body.number) == self.next_request

    def _is_less(self, body: Requested) -> bool:
        """Than what was to be summed up; however much there is of its session, of which nothing is known here."""
        assert self.asked is not None
        new, old = ((each.past is None, each.past or 0, each.summed) for each in (body, self.asked))
        is_clipped = 0 < body.clip and (not self.asked.clip or body.clip < self.asked.clip)
        return new < old or is_clipped

    def _answered(self, body: Answered) -> Self:
        self._check(self._is_asked(body.turn), body)
        assert self.asked is not None
        assert self.opened is not None
        counters, answer = credit_answer(self.counters, self.asked, body), replace(body, messages=())
        if self.asked.purpose is Purpose.COMPACT:
            return replace(self, counters=counters, answer=answer)
        return replace(
            self,
            counters=counters,
            answer=answer,
            answered_at=(*self.answered_at, len(self.told)),
            is_fresh=False,
            repairs=self.repairs + body.invalid,
            equal=self._with_equal(body) if self.opened.budget.equal_calls else (),
            told=(*self.told, *body.messages),
            measured_tokens=self.measured_tokens if body.usage is None else body.usage.tokens,
            unmeasured_bytes=self.unmeasured_bytes + bytes_of(body.messages) if body.usage is None else 0,
        )

    def _compacted(self, body: Compacted) -> Self:
        # A replay begins here, with nothing but what opened the run before it.
        is_read = self.opened is not None and self.turn == 0
        self._check(is_read or (self.stage is Stage.COMPACT and body.turn == self.turn), body)
        return replace(
            self,
            counters=replace(body.counters, active_ms=self.counters.active_ms),
            turn=body.turn,
            tries=0,
            asked=None,
            answer=None,
            failure=None,
            repairs=body.repairs,
            equal=tuple((each.digest, each.count) for each in body.equal),
            told=body.messages,
            measured_tokens=0,
            unmeasured_bytes=bytes_of(body.messages),
            answered_at=body.answers,
            asked_at=body.asked_at,
            is_fresh=True,
        )

    def _with_equal(self, body: Answered) -> tuple[tuple[str, int], ...]:
        counts = dict(self.equal)
        for call in body.calls:
            if call.step:
                digest = equality(call)
                counts[digest] = counts.get(digest, 0) + 1
        return tuple(counts.items())

    def _is_asked(self, turn: int) -> bool:
        return self.asked is not None and self.answer is None and self.failure is None and turn == self.turn

    def _check(self, holds: bool, body: Body) -> None:
        if not holds:
            raise JournalBroken(
                f"{body.type.value} after entry {self.ordinal}, in the stage {self.stage.value}"
            )


def replay(entries: Iterable[EntryRow], *, active_ms: int = 0) -> Transcript:
    """Of the entry that opened a run and all since it was compacted. Raises JournalBroken."""
    transcript = Transcript()
    for entry in entries:
        try:
            transcript = transcript.next(entry)
        except EntryRefused as error:
            raise JournalBroken(f"entry {entry.ordinal}: {error}") from None
    return transcript.is_active(active_ms)
