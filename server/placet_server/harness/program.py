"""The loop of an agent: ask the model, make the calls that it wants, tell it what came of them, until it has an answer.

It begins from its start in every stretch of a run. What was done before is in the entries, and `Transcript` says from
them what is to be done next; so nothing here remembers anything of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, assert_never

from placet.failure import Failure
from placet_server.core.execution.child import ChildEnd
from placet_server.core.execution.connectors import OutputText
from placet_server.core.execution.ending import Ended, Postponed
from placet_server.core.execution.ending import Spent as SpentEnding
from placet_server.core.execution.judgement import RETRY_BUDGET
from placet_server.core.execution.program import StepCall
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.for_sure import for_sure
from placet_server.harness.budget import bound_of_further, bound_of_request
from placet_server.harness.compaction import (
    PAST_SUMMARY,
    SUM_UP,
    SUMMARY,
    compacted,
    fitting,
    is_past_help,
    request_of,
    reserve_of,
    sums_up_what_was_asked,
    to_sum_up,
)
from placet_server.harness.compaction import bound_of as bound_of_memory
from placet_server.harness.delegate import input_of, record_of
from placet_server.harness.history import Past, place_of, recall, results_for, saw_sensitive
from placet_server.harness.instruction import InstructionRefused, render
from placet_server.harness.live import Live
from placet_server.harness.observer import (
    UNTRACED,
    NoSpans,
    Observed,
    RunSpans,
    StretchSpans,
    TurnCounts,
    Uncounted,
)
from placet_server.harness.plan import Plan, PlannedCall
from placet_server.harness.provider.adapter import Models, load
from placet_server.harness.provider.answer import FINAL_OUTPUT, AgentsUnavailable, Picture, Provider
from placet_server.harness.result import results_of
from placet_server.harness.tools import Offers, ToolsRefused, resolve
from placet_server.harness.transcript import JournalBroken, Stage, Transcript, replay
from placet_server.harness.turn import SLEPT_SECONDS_MAX, delay_of, take_turn
from placet_server.model.agent import AgentSpec
from placet_server.model.ask import Part, arguments_of, budget_of, parts_of
from placet_server.model.budget_errors import bound_of
from placet_server.model.caller import EVERY_SCOPE, SENSITIVE_SCOPE, Caller
from placet_server.model.capability import Capability
from placet_server.model.entry import (
    Compacted,
    Entry,
    Failed,
    History,
    Opened,
    PinnedTool,
    Purpose,
    Requested,
    Told,
    TurnProblem,
)
from placet_server.model.entry_text import EntryRefused, entry_of
from placet_server.model.inline import spec_of
from placet_server.model.usage import Budget, Spent

_log = logging.getLogger(__name__)
MESSAGE_LENGTH_MAX = 512
MEMORY_BROKEN = (
    "What the run remembers, or what was said in its session, is not in the store as it was written, so that nothing "
    "can go on from it. Ask anew, in another session; the operator's log says which entry it is."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all runs of a server have. `budget_max`: none of them spends more."""

    models: Models
    offers: Offers
    budget_max: Budget
    counts: TurnCounts = field(default_factory=Uncounted)
    spans: RunSpans = field(default_factory=NoSpans)


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
        if isinstance(ended.ending, SpentEnding) and ended.ending.reason != RETRY_BUDGET:
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
            self._check_tries()
        while True:
            match self._state.stage:
                case Stage.DONE:
                    assert self._state.output is not None
                    return OutputText(self._state.output)
                case Stage.SPENT:
                    assert self._state.spent is not None
                    _spent(self._state.spent)
                case Stage.INVALID:
                    raise failure("output_invalid", _broken(self._state))
                case Stage.ASK | Stage.CALL:
                    await self._turn()
                case Stage.COMPACT:
                    await self._compact()
                case Stage.OPEN:
                    raise AssertionError("no run is still to be opened here")
                case _:
                    assert_never(self._state.stage)

    async def _open(self) -> None:
        spec, caller = self._spec, self._caller
        history, saw = await self._place()
        value = json.loads(self._text)
        arguments = arguments_of(value)
        # What an earlier try of this very step has spent is gone.
        before, asked = await self._stretch.entries.spent_before(), budget_of(value)
        if (spent := bound_of_further(asked, before)) is not None:
            _spent(spent)
        asked = asked.without(before)
        budget = spec.budget.tightened(self._around.budget_max).tightened(asked)
        model = self._around.models.find(spec.model, with_price=bool(budget.cost_micros))
        # What is missing to ask it is told before anything is kept.
        self._provider(spec.model)
        try:
            tools = await for_sure(
                self._stretch.attempt.journal,
                lambda: resolve(self._around.offers, spec, caller.tenant, self._asking()),
            )
            opened = Opened(
                spec_digest=self._capability.contract_digest,
                model=spec.model,
                instructions=render(spec.instructions, arguments),
                tools=tools,
                budget=budget,
                price=model.price,
                settings=replace(spec.settings, max_tokens=min(spec.settings.max_tokens, model.max_tokens)),
                retry=spec.provider_retry,
                arguments=json.dumps(arguments, ensure_ascii=False, sort_keys=True),
                output_schema=self._capability.output_schema or None,
                output_repairs_max=spec.output_repairs_max,
                history=history,
                memory=spec.memory,
                saw_sensitive=saw or (self._sees_sensitive and _shows_sensitive(tools)),
            )
            await self._append(entry_of(opened))
            await self.spans.opened(opened)
        except ToolsRefused as error:
            raise failure("agent_tools", f"{self._capability.name}: {error}.") from None
        except InstructionRefused as error:
            raise failure("agent_arguments", f"{self._capability.name}: {error}.", "invalid") from None
        except EntryRefused as error:
            raise failure(
                "agent_tools", f"{self._capability.name} and its tools are too large: {error}."
            ) from None

    async def _place(self) -> tuple[History | None, bool]:
        """In its session; and whether what was said there may hold what contracts call sensitive."""
        history = await place_of(self._stretch)
        saw = await saw_sensitive(self._stretch, history)
        if saw and not self._sees_sensitive:
            told = f"What was said in the session needs scope {SENSITIVE_SCOPE}: begin another one."
            raise failure("session_sensitive", told)
        return history, saw

    async def _recall(self) -> None:
        past = self._past = await recall(self._stretch, self._state, self._text)
        self._state = replace(
            self._state, history=past.messages, history_answers=past.answers, history_bytes=past.size
        )

    async def _turn(self) -> None:
        provider = self._provider(self._opened.model)
        results, messages = await self._told()
        requested = self._charged(self._request(results, messages))
        await self._append(self._fitting(requested), [told.action_id for told in results if told.action_id])
        await self.spans.told()
        heard = self._live.heard(self._state.turn, self._state.tries)
        place = self._around.models.find(self._opened.model).base_url or ""
        await self._append(await take_turn(self._stretch, self._state, provider, heard, place))
        if self._state.failure is not None:
            await self._wait_after(self._state.failure)

    @property
    def _spec(self) -> AgentSpec:
        """Of the agent; or as it was said with what it is asked."""
        return self._capability.agent or spec_of(json.loads(self._text))

    @property
    def _caller(self) -> Caller:
        return self._stretch.attempt.run.work.caller

    def _asking(self) -> tuple[str, ...]:
        """Itself, and what has asked it."""
        return (self._capability.name, *(each.subject for each in self._caller.delegation))

    async def _compact(self) -> None:
        from placet_server.harness.provider import wire

        state = self._state
        assert state.answer is not None
        parts: list[str | Picture] = [f"{PAST_SUMMARY}\n\n{state.answer.summary}"]
        if sums_up_what_was_asked(state):
            parts = [*self._asked(), f"{SUMMARY}\n\n{state.answer.summary}"]
        await self._append(self._fitting(compacted(state, wire.request_text(parts))))

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
        return not self._caller.scopes.isdisjoint((EVERY_SCOPE, SENSITIVE_SCOPE))

    async def _records(self, plan: Plan, ends: dict[int, ChildEnd]) -> tuple[Told, ...]:
        """With what delegates have spent; one that has never asked its model has spent nothing."""
        asked = [call.step for call in plan.steps if call.tool is not None and call.tool.delegate]
        spent = await self._stretch.entries.spent_below(asked) if asked else {}
        return tuple(record_of(call, ends, spent) for call in plan.calls)

    async def _call(self, steps: Sequence[PlannedCall]) -> dict[int, ChildEnd]:
        """By the numbers of the calls."""
        if not steps:
            return {}
        ends = await self._live.call_all(self._state.turn, steps, [_step(call) for call in steps])
        by_call = {call.call: end for call, end in zip(steps, ends, strict=True)}
        self.spans.called(steps, by_call)
        return by_call

    def _asked(self) -> list[str | Picture]:
        """What the run was asked."""
        return [_said(part) for part in parts_of(json.loads(self._text))]

    def _request(self, results: tuple[Told, ...], messages: tuple[str, ...]) -> Requested:
        """The next one: to go on, or to sum up what has become too long."""
        from placet_server.harness.provider import wire

        state = self._state
        context = self._around.models.find(self._opened.model).context_tokens
        summed = to_sum_up(state, messages, bound_of_memory(self._opened.memory, context))
        if summed is not None:
            return request_of(state, summed, results, (*messages, wire.request_text([SUM_UP])))
        turn, number = state.next_request
        purpose = Purpose.ANSWER
        if number > 1 and state.asked is not None:
            purpose = state.asked.purpose
        elif state.answer is not None and state.answer.invalid:
            purpose = Purpose.REPAIR
        return Requested(turn=turn, number=number, purpose=purpose, results=results, messages=messages)

    def _charged(self, requested: Requested) -> Requested:
        """With its reserve. Raises Ended if it would pass a bound."""
        state, opened = self._state, self._opened
        reserve = reserve_of(state, requested, opened.price)
        counters = replace(state.told_of(requested.results), active_ms=self.active_ms)
        if (spent := bound_of_request(counters, opened.budget, requested.number, reserve)) is not None:
            _spent(spent)
        return replace(requested, tokens=reserve.tokens, micros=reserve.micros)

    def _fitting(self, body: Requested | Compacted) -> Entry:
        try:
            return fitting(body) if isinstance(body, Compacted) else entry_of(body)
        except EntryRefused as error:
            raise failure(
                "message_too_large", f"What the model would be told is too large: {error}.", "invalid"
            ) from None

    async def _append(self, entry: Entry, seen: Sequence[str] = ()) -> None:
        after = self._state.next(entry).is_active(self.active_ms)
        plan = after.pending
        # The calls of an answer are written with it.
        ahead = plan is not None and bool(plan.steps)
        await self._stretch.entries.append(entry, after.counters, seen=seen, ahead=ahead)
        self._state = after

    @property
    def active_ms(self) -> int:
        """Milliseconds that something of the run has run, this stretch with all before it."""
        return self._ran_ms + round((asyncio.get_running_loop().time() - self._begin) * 1000)

    def _check_tries(self) -> None:
        """Raises Failure or Ended if the turn was asked for as often as it may be, with the times that a stretch ended
        before there was an answer.
        """
        state = self._state
        if state.failure is not None:
            self._check_goes_on(state.failure)
        elif state.asked is not None and state.answer is None and state.tries >= self._opened.retry.tries_max:
            told = f"The model {self._opened.model} was asked {state.tries} times, and no answer was kept."
            raise Ended(SpentEnding(reason=RETRY_BUDGET, cause=TurnProblem.TIMEOUT.value, message=told))

    def _check_goes_on(self, failed: Failed) -> None:
        """Raises Failure or Ended if this was the last try of the turn, and nothing helps."""
        if not is_past_help(self._state):
            return
        told = f"The model {self._opened.model} gave no answer: {failed.category.value}"
        # Its words may be anybody's, and tell of the operator's machines: the log has them.
        told = f"{told} ({failed.status})." if failed.status else f"{told}."
        if not failed.category.is_temporary:
            raise failure(f"model_{failed.category.value}", told)
        told = f"{told} The server's log says more."
        if delay_of(failed, self._opened.retry) is None:
            ending = SpentEnding(
                reason=RETRY_BUDGET, cause=failed.category.value, message=told[:MESSAGE_LENGTH_MAX]
            )
            raise Ended(ending)

    async def _wait_after(self, failed: Failed) -> None:
        """Until the next try; a long time without this process. Raises Failure, Ended."""
        self._check_goes_on(failed)
        if not failed.category.is_temporary:
            return
        delay = delay_of(failed, self._opened.retry) or 0.0
        if delay > SLEPT_SECONDS_MAX:
            message = f"The model {self._opened.model} is to be asked again later: {failed.category.value}."
            raise Ended(Postponed(delay_seconds=delay, message=message))
        with self._stretch.asking():
            await asyncio.sleep(delay)


def failure(code: str, message: str, category: str = "permanent") -> Failure:
    """Of the run itself: what its calls have done is told by the core."""
    return Failure(
        code,
        message[:MESSAGE_LENGTH_MAX],
        category="invalid" if category == "invalid" else "permanent",
        effect="not_done",
    )


def _spent(spent: Spent) -> NoReturn:
    raise Ended(SpentEnding(reason=spent.reason.value, cause=bound_of(spent.budget, spent.bound)))


def _broken(state: Transcript) -> str:
    """With what the last answer broke, as the model was told it: rules of the schema, and nothing of what it said."""
    assert state.answer is not None
    told = [call.refusal for call in state.answer.calls if call.tool == FINAL_OUTPUT]
    last = state.answer.repair or (told[-1] if told else "")
    said = (
        f"The model gave no answer that the run may end with, {state.repairs} times. Of the last one: {last}"
    )
    return " ".join(said.split())


def _shows_sensitive(tools: Sequence[PinnedTool]) -> bool:
    """To a run that may see it. Delegates tell it in words."""
    return any(tool.sensitive or tool.delegate for tool in tools)


def _step(call: PlannedCall) -> StepCall:
    assert call.tool is not None
    scopes = call.tool.scopes
    return StepCall(
        step=call.step,
        capability=call.tool.name,
        version=call.tool.version,
        input_json=input_of(call.input_json, call.slice) if call.tool.delegate else call.input_json,
        scopes=None if scopes is None else frozenset(scopes),
        contract_digest=call.tool.contract_digest,
    )


def _said(part: Part) -> str | Picture:
    if part.text is not None:
        return part.text
    if part.json is not None:
        return part.json
    assert part.binary is not None
    return Picture(media_type=part.binary.media_type, data=part.binary.data)
