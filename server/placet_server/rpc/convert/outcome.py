"""Outcome → message."""

from __future__ import annotations

from placet.v1 import outcome_pb2
from placet_server.model.outcome import Outcome
from placet_server.model.wait import WAITS_MAX, Wait
from placet_server.rpc.convert.enumeration import (
    EFFECT_STATE,
    ERROR_REASON,
    OUTCOME_KIND,
    RETRY_ADVICE,
    WAIT_KIND,
)
from placet_server.rpc.convert.time import duration, set_timestamp
from placet_server.rpc.text import valid


def outcome_message(outcome: Outcome) -> outcome_pb2.Outcome:
    message = outcome_pb2.Outcome()
    fill_outcome(message, outcome)
    return message


def fill_outcome(message: outcome_pb2.Outcome, outcome: Outcome) -> None:
    """Into a message that is there already: filling in place is several times cheaper than copying."""
    message.kind = OUTCOME_KIND[outcome.kind]
    message.action_id = outcome.action_id
    message.attempt = outcome.attempt
    message.retry_advice = RETRY_ADVICE[outcome.retry_advice]
    if outcome.reason is not None:
        message.reason = ERROR_REASON[outcome.reason]
    if outcome.effect is not None:
        message.effect = EFFECT_STATE[outcome.effect]
    if outcome.failure_code:
        message.failure_code = valid(outcome.failure_code)
    if outcome.message:
        message.message = valid(outcome.message)
    if outcome.retry_delay_seconds is not None:
        message.retry_delay.CopyFrom(duration(outcome.retry_delay_seconds))
    if outcome.waits:
        message.waits.extend(map(wait_message, outcome.waits[:WAITS_MAX]))


def wait_message(wait: Wait) -> outcome_pb2.Wait:
    message = outcome_pb2.Wait(
        kind=WAIT_KIND[wait.kind],
        approval_id=wait.approval_id,
        action_id=wait.action_id,
        step_path=wait.step_path,
        title=wait.title,
    )
    set_timestamp(message.expire_time, wait.expire_time_us)
    return message
