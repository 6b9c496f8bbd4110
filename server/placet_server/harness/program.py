"""The loop of an agent: ask the model, make the calls that it wants, tell it what came of them, until it has an answer.

It begins from its start in every stretch of a run. What was done before is in the entries, and `Transcript` says from
them what is to be done next; so nothing here remembers anything of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from placet_server.core.execution.child import ChildEnd
from placet_server.core.execution.connectors import OutputText
from placet_server.core.execution.ending import Ended, Exhausted
from placet_server.core.execution.judgement import RETRY_BUDGET
from placet_server.core.execution.stretch import Stretch
from placet_server.harness.compaction import PAST_SUMMARY, SUMMARY, compacted, sums_up_what_was_asked
from placet_server.harness.delegate import record_of
from placet_server.harness.ending import broken_rule, check_tries, delay_after, failure, spend
from placet_server.harness.history import Past, recall, results_for
from placet_server.harness.live import Live
from placet_server.harness.observer import UNTRACED, Observed, StretchSpans
from placet_server.harness.opening import open_run, sees_sensitive
from placet_server.harness.plan import Plan, PlannedCall
from placet_server.harness.provider.adapter import load
from placet_server.harness.provider.answer import AgentsUnavailable, Picture, Provider
from placet_server.harness.replay import JournalBroken, replay, with_entry
from placet_server.harness.request import charged, entry_told, next_request
from placet_server.harness.result import results_of
from placet_server.harness.surroundings import Surroundings
from placet_server.harness.transcript import Stage, Transcript
from placet_server.harness.turn import take_turn
from placet_server.model.agent import AgentSpec
from placet_server.model.ask import Part, parts_of
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.entry import Entry, Failed, Opened, Told
from placet_server.model.inline import spec_of

_log = logging.getLogger(__name__)
MEMORY_BROKEN = (
    "What the run remembers, or what was said in its session, is not in the store as it was written, so that nothing "
    "can go on from it. Ask anew, in another session; the operator's log says which entry it is."
)


async def run(around: Surroundings, stretch: Stretch, capability: Capability, text: str) -> OutputText:
    """One stretch of a run of the agent. Raises Failure, Ended, and what `Stretch.call_all` and `RunEntries` raise."""
    remembered = await stretch.entries.read()
    try:
        state = replay(remembered.entries, active_ms=remembered.active_ms)
        return await _go_on(around, stretch, capability, text, state, is_redriven=remembered.is_redriven)
    except JournalBroken as error:
        # The same whoever tries again.
        _log.error(
            "a run of %s cannot go on from what is remembered: %s",
            capability.name,
            error,
            extra={"action_id": stretch.attempt.action.action_id},
        )
        raise failure("memory_broken", MEMORY_BROKEN) from None


async def _go_on(
    around: Surroundings,
    stretch: Stretch,
    capability: Capability,
    text: str,
    state: Transcript,
    *,
    is_redriven: bool,
) -> OutputText:
    loop = _Loop(around, stretch, capability, text, state)
    try:
        async with around.spans.stretch(stretch, capability, state) as loop.spans:
            return await loop.run(is_redriven=is_redriven)
    except AgentsUnavailable as error:
        # What the operator takes away under a run is missing to it: redriven, it goes on once that is there again.
        # Where that is, and under which name, is for the operator alone.
        _log.warning("%s cannot be run: %s", capability.name, error)
        raise failure("agent_unavailable", f"The agent cannot be run here: {error.problem}.") from None
    except Ended as ended:
        if isinstance(ended.ending, Exhausted) and ended.ending.reason != RETRY_BUDGET:
            await stretch.entries.has_run(loop.active_ms)
        raise


class _Loop:
    spans: StretchSpans = UNTRACED

    def __init__(
        self, around: Surroundings, stretch: Stretch, capability: Capability, text: str, state: Transcript
    ) -> None:
        self._around = around
        self._stretch = stretch
        self._live = Live(stretch)
        self._capability = capability
        self._text = text
        self._state = state
        self._past = Past()
        self._ran_ms = state.counters.active_ms
        self._begin = asyncio.get_running_loop().time()

    async def run(self, *, is_redriven: bool) -> OutputText:
        """`is_redriven`: people have asked for more since the newest entry: the turn is asked for again."""
        if self._state.stage is Stage.OPEN:
            await self._open()
        await load()
        await self._recall()
        if not is_redriven:
            check_tries(self._state)
        while True:
            match self._state.stage:
                case Stage.DONE:
                    assert self._state.output is not None
                    return OutputText(self._state.output)
                case Stage.SPENT:
                    assert self._state.spent is not None
                    spend(self._state.spent)
                case Stage.INVALID:
                    raise failure("output_invalid", broken_rule(self._state))
                case Stage.ASK | Stage.CALL:
                    await self._turn()
                case Stage.COMPACT:
                    await self._compact()
                case Stage.OPEN:
                    raise AssertionError("no run is still to be opened here")
                case _:
                    assert_never(self._state.stage)

    async def _open(self) -> None:
        spec = self._spec
        # What is missing to ask it is told before anything is kept.
        self._provider(spec.model)
        opened, entry = await open_run(self._around, self._stretch, self._capability, spec, self._text)
        await self._append(entry)
        await self.spans.opened(opened)

    async def _recall(self) -> None:
        past = self._past = await recall(self._stretch, self._state, self._text)
        self._state = replace(
            self._state, history=past.messages, history_answers=past.answers, history_bytes=past.size
        )

    async def _turn(self) -> None:
        provider = self._provider(self._opened.model)
        results, messages = await self._told()
        model = self._around.models.find(self._opened.model)
        wanted = next_request(self._state, results, messages, model.context_tokens)
        requested = charged(self._state, wanted, self.active_ms)
        seen = [told.action_id for told in results if told.action_id]
        await self._append(entry_told(requested), seen, ahead=True)
        await self._stretch.entries.begun()
        heard = self._live.heard(self._state.turn, self._state.tries)
        place, told = model.base_url or "", self.spans.told
        await self._append(await take_turn(self._stretch, self._state, provider, heard, place, told=told))
        if self._state.failure is not None:
            await self._wait_after(self._state.failure)

    async def _wait_after(self, failed: Failed) -> None:
        """Until the next try. Raises Failure, Ended."""
        if seconds := delay_after(self._state, failed):
            with self._stretch.asking():
                await asyncio.sleep(seconds)

    @property
    def _spec(self) -> AgentSpec:
        """Of the agent; or as it was said with what it is asked."""
        return self._capability.agent or spec_of(json.loads(self._text))

    @property
    def _caller(self) -> Caller:
        return self._stretch.attempt.run.work.caller

    async def _compact(self) -> None:
        from placet_server.harness.provider import wire

        state = self._state
        assert state.answer is not None
        parts: list[str | Picture] = [f"{PAST_SUMMARY}\n\n{state.answer.summary}"]
        if sums_up_what_was_asked(state):
            parts = [*self._asked(), f"{SUMMARY}\n\n{state.answer.summary}"]
        await self._append(entry_told(compacted(state, wire.request_text(parts))))

    def _provider(self, model: str) -> Provider:
        """Raises AgentsUnavailable."""
        spec, caller = self._spec, self._caller
        provider = self._around.models.provider(model, caller.tenant, spec.credential)
        return Observed(provider, provider.entry, self._around.counts, self.spans)

    @property
    def _opened(self) -> Opened:
        assert self._state.opened is not None
        return self._state.opened

    async def _told(self) -> tuple[tuple[Told, ...], tuple[str, ...]]:
        """What the model is told next, and of which calls. Raises as `Stretch.call_all` does."""
        from placet_server.harness.provider import wire

        plan = self._state.pending
        if plan is not None:
            ends = await self._call(plan.steps)
            parts = results_of(plan, ends, sees_sensitive=self._sees_sensitive)
            repair = [self._state.repair] if self._state.repair else []
            return await self._records(plan, ends), (wire.request_text(repair, parts),)
        if self._state.next_request[1] > 1 or (self._state.is_fresh and self._state.asked is None):
            return (), ()
        if self._state.turn == 0:
            left = await results_for(self._stretch, self._past, sees_sensitive=self._sees_sensitive)
            return (), (wire.request_text(self._asked(), left),)
        return (), (wire.request_text([self._state.repair]),)

    @property
    def _sees_sensitive(self) -> bool:
        return sees_sensitive(self._caller)

    async def _records(self, plan: Plan, ends: dict[int, ChildEnd]) -> tuple[Told, ...]:
        """With what delegates have spent; one that has never asked its model has spent nothing."""
        asked = [call.step for call in plan.steps if call.tool is not None and call.tool.delegate]
        spent = await self._stretch.entries.spent_below(asked) if asked else {}
        return tuple(record_of(call, ends, spent) for call in plan.calls)

    async def _call(self, steps: Sequence[PlannedCall]) -> dict[int, ChildEnd]:
        """By the numbers of the calls."""
        if not steps:
            return {}
        ends = await self._live.call_all(self._state.turn, steps)
        self.spans.called(steps, ends)
        return ends

    def _asked(self) -> list[str | Picture]:
        """What the run was asked."""
        return [_said(part) for part in parts_of(json.loads(self._text))]

    async def _append(self, entry: Entry, seen: Sequence[str] = (), *, ahead: bool = False) -> None:
        after = with_entry(self._state, entry).is_active(self.active_ms)
        plan = after.pending
        # The calls of an answer are written with it.
        ahead = ahead or (plan is not None and bool(plan.steps))
        await self._stretch.entries.append(entry, after.counters, seen=seen, ahead=ahead)
        self._state = after

    @property
    def active_ms(self) -> int:
        """Milliseconds that something of the run has run, this stretch with all before it."""
        return self._ran_ms + round((asyncio.get_running_loop().time() - self._begin) * 1000)


def _said(part: Part) -> str | Picture:
    if part.text is not None:
        return part.text
    if part.json is not None:
        return part.json
    assert part.binary is not None
    return Picture(media_type=part.binary.media_type, data=part.binary.data)
