"""What a call ends with when it succeeds, and what a submission answers."""

from __future__ import annotations

import json
from dataclasses import dataclass

from placet.context import Json
from placet.v1 import action_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`attached`: the key was known, to an earlier call or to an earlier sending of this one. Of an action that waits
    for people, which only `on_wait="return"` gives, `output` is None."""

    output: Json
    action_id: str
    attached: bool
    action: action_pb2.Action

    @classmethod
    def of(cls, action: action_pb2.Action, *, attached: bool) -> Result:
        return cls(
            output=json.loads(action.output_json) if action.output_json else None,
            action_id=action.action_id,
            attached=attached,
            action=action,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """It is stored. `attached`: the key was known, and `action` is its holder as it stands, ended or not. In an answer
    of `submit_batch` the action has its id, state and cursor alone."""

    action_id: str
    attached: bool
    action: action_pb2.Action

    @classmethod
    def of(cls, action: action_pb2.Action, *, attached: bool) -> Submitted:
        return cls(action_id=action.action_id, attached=attached, action=action)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCount:
    """What `cancel_all` found open, what of these it asked to stop, and what of these ended at once."""

    matched: int
    marked: int
    ended: int
