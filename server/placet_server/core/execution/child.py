"""How a handler calls another capability as a step of its own work. Admission implements it; the composition root puts
the two together.

Whoever waits for a child needs nothing but memory, so it gives back meanwhile what others need to get on: or parents
could take everything, and none of their children would ever begin.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from placet.failure import CallOutcome
from placet_server.core.execution.steps import Steps
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action
from placet_server.model.child_errors import ChildLimit
from placet_server.model.errors import PlacetError
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind

if TYPE_CHECKING:
    from placet_server.core.execution.attempt import Attempt

# What Postgres or UTF-8 cannot hold.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# "#" is kept for the tries of a step.
STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# What our own programs call has parts.
PROGRAM_STEP = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")
SCOPES_MAX = 64
SCOPE_LENGTH_MAX = 128
CHILDREN_MAX = 1000
AT_ONCE_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """What a handler calls, or a turn of a program. `step`: its name there; a program's has parts joined by "/", as
    "turn/2/call/1". `scopes` None: all that the caller has. `contract_digest`: of the version that is meant, if it is
    said: another one is refused.
    """

    step: str
    capability: str
    input_json: str
    version: str = ""
    timeout_seconds: float | None = None
    scopes: frozenset[str] | None = None
    contract_digest: str = ""


class ChildAdmitter(Protocol):
    async def call(self, attempt: Attempt, call: StepCall) -> Action:
        """The child, terminal or ambiguous. Called again, also by a later attempt, a step is the same child.

        Raises the refusal of a gate, JournalMismatch, ChildLimit; and Cancelled when the attempt may not go on."""


class Holding(Protocol):
    """Something that others need, which a run holds while it works."""

    async def lend(self) -> None:
        """Given back for a while. May raise PlacetError, and then is not given back."""

    async def take_back(self) -> None:
        """Raises nothing but CancelledError; the run may then end without it."""


class ChildEnd(NamedTuple):
    """How a call ended: `output_json` if and only if it succeeded. The times are its action's; a refusal has none."""

    outcome: Outcome
    output_json: str | None = None
    create_time_us: int | None = None
    settle_time_us: int | None = None


class Calls:
    """Of one attempt. `effects`: how many have done something, or may have."""

    def __init__(
        self, children: ChildAdmitter | None, holdings: Sequence[Holding], steps: Steps | None
    ) -> None:
        if children is None:
            raise RuntimeError("this server admits no children")
        self.effects = 0
        self._children = children
        self._steps = steps
        self._count = 0
        self._lending = Lending(holdings, lambda: steps is not None and steps.awaited is not None)
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)

    def begin_turn(self) -> None:
        """How many may be called is counted anew."""
        self._count = 0

    async def call(self, attempt: Attempt, call: StepCall) -> ChildEnd:
        """A refusal is an end. Raises Cancelled, Parked."""
        self._count += 1
        if self._count > CHILDREN_MAX:
            return refusal_of(ChildLimit(limit="children", limit_max=CHILDREN_MAX))
        self.effects += 1
        try:
            async with self._lending, self._at_once:
                with _entered(self._steps, call.step):
                    child = await self._children.call(attempt, call)
                end = end_of(child)
        except PlacetError as error:
            # Whoever raised it may hold it, and must not be held by it.
            end = refusal_of(error.with_traceback(None))
        if end.outcome.effect in (None, EffectState.NOT_DONE):
            self.effects -= 1
        return end


@contextmanager
def _entered(steps: Steps | None, step: str) -> Iterator[None]:
    """A call is under way."""
    if steps is None:
        yield
        return
    steps.quiet.enter(step)
    try:
        yield
    finally:
        steps.quiet.leave(step)


class Lending:
    """What a run holds, given back while at least one of its calls waits. Nothing is lent and taken back at once, and
    nothing taken back by a run that `is_over`.
    """

    def __init__(self, holdings: Sequence[Holding], is_over: Callable[[], bool]) -> None:
        self._holdings = holdings
        self._is_over = is_over
        self._lent: list[Holding] = []
        self._waiting = 0
        self._moving = asyncio.Lock()

    async def __aenter__(self) -> None:
        self._waiting += 1
        try:
            async with self._moving:
                if not self._lent:
                    for holding in self._holdings:
                        await holding.lend()
                        self._lent.append(holding)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._waiting -= 1
        async with self._moving:
            while self._lent and self._waiting == 0 and not self._is_over():
                await self._lent.pop().take_back()


def check_call(call: StepCall, steps: re.Pattern[str] = STEP) -> None:
    """Raises ValueError: that is a mistake in the handler."""
    if not steps.fullmatch(call.step):
        raise ValueError(f"a step is 1 to 64 of letters, digits, '_', '.' and '-', not {call.step!r}")
    if UNSTORABLE.search(call.capability) or UNSTORABLE.search(call.version):
        raise ValueError("a capability or its version has a NUL or a lone surrogate")
    if call.scopes is not None and not _are_scopes(call.scopes):
        raise ValueError(f"at most {SCOPES_MAX} scopes, each of 1 to {SCOPE_LENGTH_MAX} characters")
    if call.timeout_seconds is not None and not 0 < call.timeout_seconds < math.inf:
        raise ValueError(f"a timeout is more than 0 seconds, and finite, not {call.timeout_seconds}")


def _are_scopes(scopes: frozenset[str]) -> bool:
    short = len(scopes) <= SCOPES_MAX and all(0 < len(scope) <= SCOPE_LENGTH_MAX for scope in scopes)
    return short and not any(map(UNSTORABLE.search, scopes))


def end_of(child: Action) -> ChildEnd:
    output = child.output_json if child.state is ActionState.SUCCEEDED else None
    return ChildEnd(outcome_of(child), output, child.create_time_us, child.settle_time_us)


def refusal_of(error: PlacetError) -> ChildEnd:
    """Nothing was stored, and nothing ran."""
    return ChildEnd(Outcome(kind=OutcomeKind.REFUSED, reason=error.reason, message=error.text()))


def told(outcome: Outcome) -> CallOutcome:
    """As the handler is told."""
    return CallOutcome(
        kind=outcome.kind.value.lower(),
        reason=outcome.reason or "",
        action_id=outcome.action_id,
        attempt=outcome.attempt,
        effect=None if outcome.effect is None else outcome.effect.value.lower(),
        failure_code=outcome.failure_code,
        message=outcome.message,
        retry_delay_seconds=outcome.retry_delay_seconds,
    )
