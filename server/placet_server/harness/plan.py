"""What becomes of an answer, decided before any of it is acted on: so a resume decides nothing, it reads.

Each call of the answer becomes one of three: a step with its input, a refusal that the model is told instead, or the
alias of an equal call to a delegate. So each has exactly one result, whatever happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from placet_server.harness.budget import bound_of_calls, slice_for
from placet_server.harness.provider.answer import FINAL_OUTPUT, Answer, ModelCall
from placet_server.model.ask import said_texts
from placet_server.model.entry import CALLS_MAX, Answered, CallProblem, CallRecord, Opened, PinnedTool
from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_schema import Violation, compile_schema
from placet_server.model.json_text import canonicalize, canonicalize_value
from placet_server.model.usage import Budget, Counters

INPUT_BYTES_MAX = 2**20
OUTPUT_BYTES_MAX = 2**20
_NAMES_SHOWN_MAX = 64

NOT_RUN = "Not run: the answer was final."
BOUND_IS_SPENT = "Not run: a bound of the run's budget was spent."
FINISHED = "Taken as the final answer."
SAY_SOMETHING = "The answer was empty. Answer in words, or call a tool."
CALL_FINAL_OUTPUT = f"The answer has to be given by calling {FINAL_OUTPUT}."
UNKEEPABLE = "The answer has characters that cannot be kept, or is too long. Answer again without them."
CUT_OFF = "Not run: the answer was cut off before the call was complete. Make it again, and shorter."


class _Refusal(NamedTuple):
    """Why a call is not made, and in words for the model."""

    problem: CallProblem
    words: str


_IS_FINAL = _Refusal(CallProblem.ANSWER_FINAL, NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call. It is made if it has a step; else it is told its refusal, or what the call of `alias_of` is told."""

    call: int
    provider_id: str
    tool: PinnedTool | None
    alias: str
    step: str = ""
    input_json: str = ""
    refusal: str = ""
    alias_of: int | None = None
    slice: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The calls of one answer, in its order."""

    turn: int
    calls: tuple[PlannedCall, ...] = ()

    @property
    def steps(self) -> tuple[PlannedCall, ...]:
        return tuple(call for call in self.calls if call.step)


def plan_of(answered: Answered, opened: Opened) -> Plan:
    """As it was decided."""
    return Plan(turn=answered.turn, calls=tuple(_planned(call, opened) for call in answered.calls))


def plan(
    answer: Answer, opened: Opened, *, turn: int, counters: Counters, equal: Mapping[str, int]
) -> Answered:
    """The entry of an answer. `counters`: with what it has cost. `equal`: how often calls were made before, by
    `equality`.
    """
    output, refusals, invalid, repair = _ending(answer, opened)
    calls = tuple(
        _record(turn, number, call, answer, opened, output is not None, refusals.get(number))
        for number, call in enumerate(answer.calls, start=1)
    )
    made = sum(call.tool != FINAL_OUTPUT for call in calls)
    calls = _shared(_aliased(calls, opened), opened, replace(counters, calls=counters.calls + made))
    delegates = sum(call.slice is not None for call in calls)
    spent = None
    if output is None:
        most = _most_equal(calls, opened, equal)
        spent = bound_of_calls(counters, opened.budget, made, most, delegates)
    if spent is not None:
        calls = tuple(_unmade(call) for call in calls)
    return Answered(
        turn=turn,
        usage=answer.usage,
        cost_micros=answer.cost_micros,
        finish=answer.finish,
        calls=calls,
        output=output,
        invalid=invalid,
        repair=repair,
        spent=spent,
        messages=(answer.text,),
    )


def _unmade(call: CallRecord) -> CallRecord:
    """Of an answer with which the run is spent: no step of it ever begins."""
    unmade = replace(call, step="", input="", alias_of=None, slice=None)
    return unmade if call.refusal else _refused(unmade, _Refusal(CallProblem.BUDGET_SPENT, BOUND_IS_SPENT))


def _refused(call: CallRecord, refusal: _Refusal) -> CallRecord:
    return replace(call, refusal=refusal.words, problem=refusal.problem.value)


def equality(call: CallRecord) -> str:
    """The same for the same tool with the same input."""
    return sha256(f"{call.tool}\0{call.input}".encode()).hexdigest()[:16]


def _ending(answer: Answer, opened: Opened) -> tuple[str | None, dict[int, _Refusal], bool, str]:
    """The run's output if it ends with this answer; what calls of `final_output` are told; whether the answer is one
    that the run cannot end with; and what the model is told then.
    """
    if opened.output_schema is None:
        if answer.calls:
            return None, {}, False, ""
        return _spoken(answer)
    finals = [
        (number, call)
        for number, call in enumerate(answer.calls, start=1)
        if call.tool == FINAL_OUTPUT and not _is_cut_off(answer, number)
    ]
    refusals: dict[int, _Refusal] = {}
    for number, call in finals:
        text, refusal = _input(call, opened.output_schema)
        if refusal is None:
            others = dict.fromkeys(range(1, len(answer.calls) + 1), _IS_FINAL)
            return text, {**others, number: _Refusal(CallProblem.TAKEN_AS_ANSWER, FINISHED)}, False, ""
        refusals[number] = refusal
    if not answer.calls:
        return None, {}, True, CALL_FINAL_OUTPUT
    return None, refusals, bool(refusals), ""


def _spoken(answer: Answer) -> tuple[str | None, dict[int, _Refusal], bool, str]:
    parts = [{"text": text} for text in said_texts(answer.said)]
    if not parts:
        return None, {}, True, SAY_SOMETHING
    try:
        return canonicalize_value({"parts": parts}, bytes_max=OUTPUT_BYTES_MAX).text, {}, False, ""
    except (JsonNotInteroperable, PayloadTooLarge):
        return None, {}, True, UNKEEPABLE


def _record(
    turn: int,
    number: int,
    call: ModelCall,
    answer: Answer,
    opened: Opened,
    is_final: bool,
    refusal: _Refusal | None,
) -> CallRecord:
    tool = opened.tool(call.tool)
    record = CallRecord(call=number, id=call.id, tool=call.tool, name="" if tool is None else tool.name)
    refusal = refusal or (_IS_FINAL if is_final else _not_begun(number, answer, tool, opened))
    if refusal is not None:
        return _refused(record, refusal)
    assert tool is not None
    text, refusal = _input(call, tool.input_schema)
    if refusal is not None:
        return _refused(record, refusal)
    return replace(record, step=f"turn/{turn}/call/{number}", input=text)


def _not_begun(number: int, answer: Answer, tool: PinnedTool | None, opened: Opened) -> _Refusal | None:
    """Whatever its arguments are."""
    if number > CALLS_MAX:
        return _Refusal(CallProblem.CALLS_TOO_MANY, f"Not run: an answer may have {CALLS_MAX} calls.")
    if _is_cut_off(answer, number):
        return _Refusal(CallProblem.CUT_OFF, CUT_OFF)
    if tool is None:
        return _Refusal(CallProblem.TOOL_UNKNOWN, _unknown(opened))
    return _Refusal(CallProblem.DELEGATES_CYCLE, tool.barred) if tool.barred else None


def _is_cut_off(answer: Answer, number: int) -> bool:
    """Only the last one can be: what follows a call shows that it was whole."""
    return answer.cut_off and number == len(answer.calls)


def _input(call: ModelCall, schema: str) -> tuple[str, _Refusal | None]:
    """The canonical input, or what is wrong with it."""
    try:
        document = canonicalize(call.arguments or "{}", bytes_max=INPUT_BYTES_MAX)
    except MalformedJson as error:
        return "", _invalid(
            f"Not run: the arguments are not JSON: {error.detail}, at character {error.offset}."
        )
    except JsonNotInteroperable as error:
        return "", _invalid(f"Not run: the arguments have {error.problem}, at {error.path or 'their root'}.")
    except PayloadTooLarge:
        words = f"Not run: the arguments have more than {INPUT_BYTES_MAX} bytes."
        return "", _Refusal(CallProblem.ARGUMENTS_TOO_LARGE, words)
    if not isinstance(document.value, dict):
        return "", _invalid("Not run: the arguments have to be an object.")
    violations = compile_schema(schema).violations(document.value)
    return ("", _invalid(_told(violations))) if violations else (document.text, None)


def _invalid(words: str) -> _Refusal:
    return _Refusal(CallProblem.ARGUMENTS_INVALID, words)


def _told(violations: Sequence[Violation]) -> str:
    lines = [f"{violation.path or '/'}: {violation.message}" for violation in violations]
    return "Not run: the arguments do not fit the schema.\n" + "\n".join(lines)


def _unknown(opened: Opened) -> str:
    names = [tool.alias for tool in opened.tools][:_NAMES_SHOWN_MAX]
    return f"Not run: there is no tool of this name. There are: {', '.join(names) or 'none'}."


def _aliased(calls: Sequence[CallRecord], opened: Opened) -> tuple[CallRecord, ...]:
    """Equal delegations of one answer are one; equal calls of a tool are as many as the model wants."""
    first: dict[str, int] = {}
    found = []
    for call in calls:
        tool = opened.tool(call.tool)
        if call.step and tool is not None and tool.delegate:
            number = first.setdefault(equality(call), call.call)
            call = call if number == call.call else replace(call, step="", input="", alias_of=number)
        found.append(call)
    return tuple(found)


def _shared(calls: Sequence[CallRecord], opened: Opened, counters: Counters) -> tuple[CallRecord, ...]:
    """Delegates get their budgets."""
    tools = {tool.alias: tool for tool in opened.tools if tool.delegate}
    delegates = [call for call in calls if call.step and call.tool in tools]
    return tuple(
        replace(call, slice=slice_for(counters, opened.budget, tools[call.tool].budget, len(delegates)))
        if call in delegates
        else call
        for call in calls
    )


def _most_equal(calls: Sequence[CallRecord], opened: Opened, equal: Mapping[str, int]) -> int:
    if not opened.budget.equal_calls:
        return 0
    here = Counter(equality(call) for call in calls if call.step)
    return max((equal.get(digest, 0) + count for digest, count in here.items()), default=0)


def _planned(call: CallRecord, opened: Opened) -> PlannedCall:
    return PlannedCall(
        call=call.call,
        provider_id=call.id,
        tool=opened.tool(call.tool),
        alias=call.tool,
        step=call.step,
        input_json=call.input,
        refusal=call.refusal,
        alias_of=call.alias_of,
        slice=call.slice,
    )
