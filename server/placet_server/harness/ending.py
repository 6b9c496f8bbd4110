"""How a run ends, or is put off, otherwise than by its answer."""

from __future__ import annotations

from typing import NoReturn

from placet.failure import Failure
from placet_server.core.execution.ending import Ended, Exhausted, Postponed
from placet_server.core.execution.judgement import RETRY_BUDGET
from placet_server.harness.compaction import is_past_help
from placet_server.harness.provider.answer import FINAL_OUTPUT
from placet_server.harness.transcript import Transcript
from placet_server.harness.turn import SLEPT_SECONDS_MAX, delay_of
from placet_server.model.agent import ProviderRetry
from placet_server.model.budget_errors import bound_of
from placet_server.model.entry import Failed, TurnProblem
from placet_server.model.usage import Spent

MESSAGE_LENGTH_MAX = 512


def failure(code: str, message: str, category: str = "permanent") -> Failure:
    """Of the run itself: what its calls have done is told by the core."""
    return Failure(
        code,
        message[:MESSAGE_LENGTH_MAX],
        category="invalid" if category == "invalid" else "permanent",
        effect="not_done",
    )


def spend(spent: Spent) -> NoReturn:
    raise Ended(Exhausted(reason=spent.reason.value, cause=bound_of(spent.budget, spent.bound)))


def broken_rule(state: Transcript) -> str:
    """With what the last answer broke, as the model was told it: rules of the schema, and nothing of what it said."""
    assert state.answer is not None
    told = [call.refusal for call in state.answer.calls if call.tool == FINAL_OUTPUT]
    last = state.answer.repair or (told[-1] if told else "")
    said = (
        f"The model gave no answer that the run may end with, {state.repairs} times. Of the last one: {last}"
    )
    return " ".join(said.split())


def check_tries(state: Transcript) -> None:
    """Raises Failure or Ended if the turn was asked for as often as it may be, with the times that a stretch ended
    before there was an answer.
    """
    retry, model = _asked(state)
    if state.failure is not None:
        check_goes_on(state, state.failure)
    elif state.asked is not None and state.answer is None and state.tries >= retry.tries_max:
        told = f"The model {model} was asked {state.tries} times, and no answer was kept."
        raise Ended(Exhausted(reason=RETRY_BUDGET, cause=TurnProblem.TIMEOUT.value, message=told))


def check_goes_on(state: Transcript, failed: Failed) -> None:
    """Raises Failure or Ended if this was the last try of the turn, and nothing helps."""
    if not is_past_help(state):
        return
    retry, model = _asked(state)
    told = f"The model {model} gave no answer: {failed.category.value}"
    # Its words may be anybody's, and tell of the operator's machines: the log has them.
    told = f"{told} ({failed.status})." if failed.status else f"{told}."
    if not failed.category.is_temporary:
        raise failure(f"model_{failed.category.value}", told)
    told = f"{told} The server's log says more."
    if delay_of(failed, retry) is None:
        ending = Exhausted(
            reason=RETRY_BUDGET, cause=failed.category.value, message=told[:MESSAGE_LENGTH_MAX]
        )
        raise Ended(ending)


def delay_after(state: Transcript, failed: Failed) -> float:
    """Seconds until the next try. Raises Failure if there is none, and Ended too if it is too long to wait here."""
    check_goes_on(state, failed)
    if not failed.category.is_temporary:
        return 0.0
    retry, model = _asked(state)
    delay = delay_of(failed, retry) or 0.0
    if delay > SLEPT_SECONDS_MAX:
        message = f"The model {model} is to be asked again later: {failed.category.value}."
        raise Ended(Postponed(delay_seconds=delay, message=message))
    return delay


def _asked(state: Transcript) -> tuple[ProviderRetry, str]:
    """How often, and which model."""
    assert state.opened is not None
    return state.opened.retry, state.opened.model
