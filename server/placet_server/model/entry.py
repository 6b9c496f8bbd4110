"""What a run remembers: entries, appended one by one. `entry_text.py` makes of each the text that is stored.

Entries say nothing of when or where they were written: two runs that went alike are alike, whatever was killed on the
way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import ClassVar

from placet_server.model.agent import OUTPUT_REPAIRS_DEFAULT, Memory, ModelSettings, ProviderRetry
from placet_server.model.usage import NOTHING, Budget, Counters, Price, Reserve, Spent, Usage

DETAIL_LENGTH_MAX = 512

# That one answer makes.
CALLS_MAX = 64


class EntryType(StrEnum):
    OPENED = "opened"
    REQUESTED = "requested"
    ANSWERED = "answered"
    FAILED = "failed"
    COMPACTED = "compacted"


class Purpose(StrEnum):
    """Why the model is asked."""

    ANSWER = "answer"
    REPAIR = "repair"
    COMPACT = "compact"


class TurnProblem(StrEnum):
    """Why a request has no answer; by the class and status of what the provider said, never by its words."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    CONTEXT_TOO_LONG = "context_too_long"
    INVALID = "invalid"

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may be answered later."""
        return self in _TEMPORARY


_TEMPORARY = frozenset(
    {TurnProblem.TIMEOUT, TurnProblem.RATE_LIMITED, TurnProblem.UNAVAILABLE, TurnProblem.TRUNCATED}
)


class CallProblem(StrEnum):
    """Why a call of an answer is no action. REFUSED: a gate said no, in words of its own."""

    TOOL_UNKNOWN = "tool_unknown"
    ARGUMENTS_INVALID = "arguments_invalid"
    ARGUMENTS_TOO_LARGE = "arguments_too_large"
    CALLS_TOO_MANY = "calls_too_many"
    CUT_OFF = "cut_off"
    ANSWER_FINAL = "answer_final"
    TAKEN_AS_ANSWER = "taken_as_answer"
    BUDGET_SPENT = "budget_spent"
    DELEGATES_CYCLE = "delegates_cycle"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTool:
    """A capability as the run found it when it opened. `alias`: what the model calls it by. `sensitive`: pointers into
    what it gives. `barred`: why a delegate is never asked, in words for the model; empty: it may be.
    """

    alias: str
    name: str
    version: str
    contract_digest: str
    input_schema: str = ""
    description: str = ""
    scopes: tuple[str, ...] | None = None
    delegate: bool = False
    budget: Budget = field(default_factory=Budget)
    sensitive: tuple[str, ...] = ()
    barred: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The runs of a session before this one, up to a number."""

    session_id: str
    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What holds for the whole run, whatever the catalogue says later. `saw_sensitive`: what it is told may hold what
    contracts call sensitive, of its own tools or of the session before it; None: of a release that did not say it.
    """

    type: ClassVar[EntryType] = EntryType.OPENED
    spec_digest: str
    model: str
    instructions: str = ""
    tools: tuple[PinnedTool, ...] = ()
    budget: Budget = field(default_factory=Budget)
    settings: ModelSettings = field(default_factory=ModelSettings)
    price: Price | None = None
    retry: ProviderRetry = field(default_factory=ProviderRetry)
    arguments: str = "{}"
    output_schema: str | None = None
    output_repairs_max: int = OUTPUT_REPAIRS_DEFAULT
    memory: Memory = field(default_factory=Memory)
    history: History | None = None
    saw_sensitive: bool | None = None

    def tool(self, alias: str) -> PinnedTool | None:
        return next((tool for tool in self.tools if tool.alias == alias), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the model is told of one call; `kind`: an OutcomeKind, or "" for a call that was never made; `reason`: of
    one that a gate refused. The rest is of delegates, over all tries of the call: what they have spent, and what stays
    reserved, as answers to it were lost. `turns`, `requests` and `calls` are 0 in entries of releases in which these
    were each run's own.
    """

    call: int
    action_id: str = ""
    kind: str = ""
    reason: str = ""
    turns: int = 0
    requests: int = 0
    calls: int = 0
    usage: Usage | None = None
    cost_micros: int = 0
    unpriced: int = 0
    reserved_tokens: int = 0
    reserved_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A request that is about to be made. `messages`: new ones since the entry before; of a further try, none. One
    that sums up, COMPACT, holds no more than so many messages of the run, `summed`, and the last of its own, which says
    what is wanted, and is none of the run's; and of what was said in the session before so many, `past`, None: all.
    `clip`: of these messages about so many bytes in all are told; 0: all of them.
    """

    type: ClassVar[EntryType] = EntryType.REQUESTED
    turn: int
    number: int = 1
    purpose: Purpose = Purpose.ANSWER
    tokens: int = 0
    micros: int = 0
    results: tuple[Told, ...] = ()
    summed: int = 0
    past: int | None = None
    clip: int = 0
    messages: tuple[str, ...] = ()

    @property
    def reserve(self) -> Reserve:
        return Reserve(self.tokens, self.micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """What one call of an answer became: a step with its input, or a refusal in words for the model, or the alias of
    an equal call before it. `problem`: a CallProblem, with a refusal; "" also of a release that did not say it. `id` is
    the provider's word for it. `tool`: as the model called it; `name`: which
    capability that is; empty: none of the run's.
    """

    call: int
    id: str
    tool: str
    name: str = ""
    step: str = ""
    input: str = ""
    refusal: str = ""
    problem: str = ""
    alias_of: int | None = None
    slice: Budget | None = None

    @property
    def reserve(self) -> Reserve:
        return NOTHING if self.slice is None else Reserve(self.slice.tokens, self.slice.cost_micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The provider's message, and what it was decided to mean. `usage` is None where the provider did not say: the
    reserve stays charged then. `output`: the run's, which is over with it. `repair`: the answer is none that the run
    may end with, and the model is asked again, with these words if they are not told as a call's result.
    `summary`: of an answer that sums up, which is none of the run's messages.
    """

    type: ClassVar[EntryType] = EntryType.ANSWERED
    turn: int
    usage: Usage | None = None
    cost_micros: int | None = None
    finish: str = ""
    calls: tuple[CallRecord, ...] = ()
    output: str | None = None
    invalid: bool = False
    repair: str = ""
    summary: str = ""
    spent: Spent | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """No answer. `charged`: the provider may have worked for it, so its reserve stays charged."""

    type: ClassVar[EntryType] = EntryType.FAILED
    turn: int
    number: int = 1
    category: TurnProblem
    status: int = 0
    retry_delay_seconds: float | None = None
    charged: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualCalls:
    """How often one call was made: `digest` is of tool and input."""

    digest: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Stands for all that was before it, except what the run was opened with: its messages are the whole history, and
    what a replay would have counted is here. `answers`: which of its messages are the model's, from 0; `asked_at`:
    which one is what the run was asked, 0: the first, with the summary.
    """

    type: ClassVar[EntryType] = EntryType.COMPACTED
    turn: int
    through: int
    turns: int
    counters: Counters
    repairs: int = 0
    equal: tuple[EqualCalls, ...] = ()
    answers: tuple[int, ...] = ()
    asked_at: int = 0
    messages: tuple[str, ...] = ()


Body = Opened | Requested | Answered | Failed | Compacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """As it is stored. `body` is exactly its text."""

    type: EntryType
    turn: int
    body: str

    @property
    def digest(self) -> str:
        return sha256(self.body.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow(Entry):
    """`attempt`: which one wrote it."""

    ordinal: int
    attempt: int
