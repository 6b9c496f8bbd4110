"""An action that was given few of its members is the same as one that was given all of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from placet_server.model.action import Action, Requester
from placet_server.model.lifecycle import ActionState

GIVEN: dict[str, Any] = {
    "action_id": "0190a1b2-0000-7000-8000-000000000001",
    "requester": Requester(tenant="acme", subject="agent-1", kind="AGENT"),
    "capability": "orders.place",
    "version": "1",
    "contract_digest": "00",
    "effect_class": "IDEMPOTENT",
    "state": ActionState.RUNNING,
    "input_json": "{}",
    "input_digest": "01",
    "labels": {},
}


def test_what_is_not_given_is_as_if_it_had_been_left_out() -> None:
    whole, few = Action(**GIVEN), Action.of_members(dict(GIVEN))
    assert whole == few
    assert repr(whole) == repr(few)
    assert replace(whole, attempt=2) == replace(few, attempt=2)


def test_a_change_of_one_member_leaves_every_other_as_it_was() -> None:
    few = Action.of_members(dict(GIVEN))
    changed = few.changed(attempt=2)
    assert ["attempt"] == [f.name for f in fields(Action) if getattr(few, f.name) != getattr(changed, f.name)]
