"""What the agents of the comparison do: the same conversations, on the same model, with the same tool.

`answer` is one request; `turns` are eight turns with one call each, then an answer; `calls` are eight turns with four
calls each. So a further turn costs what `turns` takes beyond `answer`, and a further call what `calls` takes beyond
`turns`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from placet.testing.model_servers import Say, Step, call

TURNS = 8
CALLS = 4
TOOL = "bench.look"
# As a model is told it.
ALIAS = "bench-look"
TOLD = "Looks at an order."
ASKED = "Look after my orders."
ANSWERED = "Done."
ANSWER, TURNS_, CALLS_, WAITS, SPOKEN, PACED = "answer", "turns", "calls", "waits", "spoken", "paced"
# What the model of PACED says, one piece after the other, each with its number.
PIECES = 20
PACE_SECONDS = 1.0
CLOCK_LENGTH = 11
SHAPES = (ANSWER, TURNS_, CALLS_)
TOOL_SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}


def look(order: str) -> str:
    """What the tool gives."""
    return f"seen {order}"


def clock_text() -> str:
    """Milliseconds, by a clock that all processes of a machine share: what the model of SPOKEN begins with."""
    return f"{time.monotonic() * 1000 % 1e8:0{CLOCK_LENGTH}.2f}"


def age_ms(said: str) -> float:
    """Since it was written."""
    return float(clock_text()) - float(said[:CLOCK_LENGTH])


def piece(number: int) -> str:
    """Of what the model of PACED says, which ends with ";"."""
    return f"{clock_text()} {number:04};"


def scripts() -> Mapping[str, Sequence[Step]]:
    """By the name of the model, which is that of the shape."""
    return {
        ANSWER: [Say(ANSWERED)],
        TURNS_: [*_turns(1), Say(ANSWERED)],
        CALLS_: [*_turns(CALLS), Say(ANSWERED)],
        SPOKEN: [Say(ANSWERED)],
        PACED: [Say(ANSWERED)],
        WAITS: [Say("", call("bench-approved", order="A-1")), Say(ANSWERED)],
    }


def _turns(calls: int) -> list[Step]:
    return [
        Say("", *(call(ALIAS, order=f"A-{turn}-{number}") for number in range(calls)))
        for turn in range(TURNS)
    ]
