"""Every state of an action and every move between states, as one literal table.

An action begins RUNNING, when the row that records the intent is also the lease of the process that will act on
it; or, submitted, it begins QUEUED and waits for a process; or, where people have to say yes, it begins WAITING, and
nobody may act. From there one of four things is true at any time.
It is *ready* (QUEUED): nobody acts, and acting is safe, because no earlier attempt can have taken effect or because
the effect class says that repeating is safe. It is *leased* (RUNNING): one process may act and write. Or it is
*unknown* (AMBIGUOUS): an effect may have happened and nobody may act; only a definite answer about that effect moves
it. Or it is *not allowed yet* (WAITING): nothing of it has happened, and it is ready once people have said yes.
Everything else is an end.

Some moves look odd and are meant. AMBIGUOUS → SUCCEEDED, FAILED or CANCELLED is the late true answer of the attempt
that was given up: its lease stays on the row for just that; or it is what was found out about the effect. AMBIGUOUS →
QUEUED or EXHAUSTED needs a proof that nothing was done, by all its attempts, and that none can act any more: a lookup's
answer is one, as `core/execution/finding.py` judges it; what the attempt says that was given up never is. QUEUED →
AMBIGUOUS happens when an attempt that ended unknown was going to be repeated under the provider's deduplication, and
then a cancel came or that deduplication ran out: closing it as CANCELLED would be a lie. RUNNING → WAITING, DENIED or
REFUSED is what its lease holder finds before the handler is entered: it is not allowed any more, or not without
asking again; or, of what is COMPOSED, RUNNING → WAITING is that it waits for its steps with nobody running it
(`CHILD`): any end of one makes it ready (`WOKEN`), and who claims it then goes on with the same attempt. The run of an
agent may wait as well, before it has begun, for the run before it in its session (`SESSION`). QUEUED →
DENIED: a yes was taken back, or was not used in time.

The ends whose effect is known not to be done may begin again, by an operator's will alone: a redrive makes them QUEUED
under a new generation. No verdict of ours does that. What was not allowed never begins again: it is asked for anew.

`tests/store` proves that the CHECK constraints of the actions table say the same.
"""

from __future__ import annotations

from enum import StrEnum


class ActionState(StrEnum):
    """Where an action stands."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    AMBIGUOUS = "AMBIGUOUS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXHAUSTED = "EXHAUSTED"
    DENIED = "DENIED"
    REFUSED = "REFUSED"


_S = ActionState

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.EXHAUSTED, _S.DENIED, _S.REFUSED})
CREATION = frozenset({_S.RUNNING, _S.QUEUED, _S.WAITING})

# Why what is COMPOSED waits, or is ready: `actions.cause`, which the statements that claim know too. For its steps:
CHILD = "CHILD"
WOKEN = "WOKEN"
# For its turn in its session; and that it has it.
SESSION = "SESSION"
# Its run has put itself off.
POSTPONED = "POSTPONED"
# Who claims it then goes on with the same attempt.
GOES_ON = frozenset({WOKEN, POSTPONED})

# What the late answer of the attempt that was given up may make of AMBIGUOUS.
LATE = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})

TRANSITIONS: dict[ActionState, frozenset[ActionState]] = {
    #            to: ready      leased      unknown        ends
    _S.QUEUED: frozenset({_S.RUNNING, _S.AMBIGUOUS, _S.CANCELLED, _S.EXHAUSTED, _S.DENIED, _S.REFUSED}),
    _S.RUNNING: frozenset(
        {
            _S.QUEUED,
            _S.WAITING,
            _S.AMBIGUOUS,
            _S.SUCCEEDED,
            _S.FAILED,
            _S.CANCELLED,
            _S.EXHAUSTED,
            _S.DENIED,
            _S.REFUSED,
        }
    ),
    _S.WAITING: frozenset({_S.QUEUED, _S.CANCELLED, _S.DENIED}),
    _S.AMBIGUOUS: frozenset({_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.EXHAUSTED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset({_S.QUEUED}),
    _S.CANCELLED: frozenset({_S.QUEUED}),
    _S.EXHAUSTED: frozenset({_S.QUEUED}),
    _S.DENIED: frozenset(),
    _S.REFUSED: frozenset(),
}


class IllegalTransition(Exception):
    """A move that the table does not have: a bug, caught before anything is written."""

    def __init__(self, source: ActionState | None, target: ActionState) -> None:
        super().__init__(f"{source or 'nothing'} may not become {target}")


def check_transition(source: ActionState | None, target: ActionState) -> None:
    """Raises IllegalTransition unless `target` may follow `source`; None is creation."""
    allowed = CREATION if source is None else TRANSITIONS[source]
    if target not in allowed:
        raise IllegalTransition(source, target)
