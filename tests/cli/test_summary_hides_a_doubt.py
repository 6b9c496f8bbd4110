"""A run that ended well with something of it in doubt does not look like one that is wholly known."""

from __future__ import annotations

import pytest

from placet.v1 import action_pb2, outcome_pb2
from placet_server.cli.ask import doubt_of
from placet_server.cli.document import document_of


@pytest.mark.parametrize(
    ("effect", "is_told"),
    [(outcome_pb2.EFFECT_STATE_UNKNOWN, True), (outcome_pb2.EFFECT_STATE_DONE, False)],
)
def test_an_effect_that_is_not_known_is_told_with_the_command_that_lists_it(
    effect: outcome_pb2.EffectState.ValueType, is_told: bool
) -> None:
    action = action_pb2.Action(outcome=outcome_pb2.Outcome(effect=effect))
    assert is_told == ("placet ambiguous" in doubt_of(document_of(action)))
    assert not doubt_of(document_of(action_pb2.Action()))
