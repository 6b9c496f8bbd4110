"""What a scripted server of models answers, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `id` is made of turn and place if it is empty; `arguments` are text, and need not be JSON."""

    tool: str
    arguments: str
    id: str | None = None


def call(tool: str, **arguments: Any) -> Call:
    """As models call tools: what is "orders.lookup" here has the name "orders-lookup" there."""
    return Call(tool.replace(".", "-"), json.dumps(arguments))


class Say:
    """A whole answer: text, then calls. `reasoning` is said before both, under a signature where the wire has one.
    `finish`: the wire's own word for why it ends. `usage`: tokens in and out, None for a server that does not tell.
    """

    def __init__(
        self,
        text: str = "",
        *calls: Call,
        reasoning: str = "",
        signature: str = "c2lnbmF0dXJl/+==",
        finish: str = "",
        usage: tuple[int, int] | None = (100, 20),
        cached: int = 0,
    ) -> None:
        self.text = text
        self.calls = calls
        self.reasoning = reasoning
        self.signature = signature
        self.finish = finish
        self.usage = usage
        self.cached = cached


@dataclass(frozen=True, slots=True)
class Fail:
    """An error by status. `body` is the wire's own for the status, if it is None."""

    status: int
    retry_after: str = ""
    body: Any = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class FailInStream:
    """The answer begins, and then there is an error of this type in its stream."""

    type: str
    message: str = "the answer ends here"


@dataclass(frozen=True, slots=True)
class Truncate:
    """The turn's answer, but only so many bytes of it. `clean`: the stream ends as if it were whole, as some proxies
    end it; else the connection is lost.
    """

    after_bytes: int
    clean: bool = True


@dataclass(frozen=True, slots=True)
class Stall:
    """The turn's answer, with silence after so many bytes: the rest follows after so long, if anybody still waits."""

    seconds: float
    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is lost before anything is said."""


Step = Say | Fail | FailInStream | Truncate | Stall | Drop
Script = Sequence[Step] | Mapping[str, Sequence[Step]]


def written(script: Sequence[Step]) -> str:
    """A script as the text that a process of its own reads."""
    return json.dumps([_written(step) for step in script])


def read(text: str) -> list[Step]:
    return [_step(**step) for step in json.loads(text)]


def _written(step: Step) -> dict[str, Any]:
    if isinstance(step, Say):
        return {"step": "Say", **vars(step), "calls": [asdict(each) for each in step.calls]}
    return {"step": type(step).__name__, **asdict(step)}


def _step(step: str, **members: Any) -> Step:
    if step == "Say":
        calls = [Call(**each) for each in members.pop("calls")]
        usage = members.pop("usage")
        return Say(members.pop("text"), *calls, usage=None if usage is None else tuple(usage), **members)
    kinds: dict[str, type[Step]] = {
        each.__name__: each for each in (Fail, FailInStream, Truncate, Stall, Drop)
    }
    return kinds[step](**members)


def turns_of(steps: Sequence[Step]) -> list[tuple[list[Step], Say]]:
    """Of each turn what is answered before it is, and its answer."""
    turns: list[tuple[list[Step], Say]] = []
    before: list[Step] = []
    for step in steps:
        if isinstance(step, Say):
            turns.append((before, step))
            before = []
        else:
            before.append(step)
    if before:
        raise ValueError("a script ends with a Say: it says which turn the steps before it are of")
    return turns
