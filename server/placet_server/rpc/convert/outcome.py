"""Outcome → message."""

from __future__ import annotations

from placet.v1 import outcome_pb2
from placet_server.model.outcome import Outcome
from placet_server.rpc.convert.enumeration import EFFECT_STATE, ERROR_REASON, OUTCOME_KIND, RETRY_ADVICE
from placet_server.rpc.convert.time import duration
from placet_server.rpc.text import valid


def outcome_message(outcome: Outcome) -> outcome_pb2.Outcome:
    message = outcome_pb2.Outcome(
        kind=OUTCOME_KIND[outcome.kind],
        action_id=outcome.action_id,
        attempt=outcome.attempt,
        retry_advice=RETRY_ADVICE[outcome.retry_advice],
        failure_code=valid(outcome.failure_code),
        message=valid(outcome.message),
    )
    if outcome.reason is not None:
        message.reason = ERROR_REASON[outcome.reason]
    if outcome.effect is not None:
        message.effect = EFFECT_STATE[outcome.effect]
    if outcome.retry_delay_seconds is not None:
        message.retry_delay.CopyFrom(duration(outcome.retry_delay_seconds))
    return message
