"""What is asked of a model, and what comes of it. Nothing here knows any provider, or the library behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from placet_server.model.agent import ModelSettings
from placet_server.model.entry import DETAIL_LENGTH_MAX, PinnedTool, TurnProblem
from placet_server.model.usage import Usage

# The tool by whose call a run ends that has an output schema. No alias of a capability is like it: see `alias`.
FINAL_OUTPUT = "final_output"


class ModelCall(NamedTuple):
    """A call that the model wants made: `arguments` exactly as it wrote them, "" if it wrote none."""

    id: str
    tool: str
    arguments: str


class Delta(NamedTuple):
    """A piece of what the model is saying. Void if the turn fails."""

    kind: Literal["text", "reasoning"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole one. `text`: the message, as it is kept; `said`: its visible text, by parts. `usage` is None where the
    provider did not say it. `cut_off`: the provider stopped before the model had ended, so the last call may not be
    whole.
    """

    text: str
    said: tuple[str, ...] = ()
    calls: tuple[ModelCall, ...] = ()
    usage: Usage | None = None
    cost_micros: int | None = None
    finish: str = ""
    cut_off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What of an opened run every request has. `output_schema` is None where the run may end with any text.
    `calls_nothing`: words are wanted, and no call.
    """

    instructions: str = ""
    tools: tuple[PinnedTool, ...] = ()
    output_schema: str | None = None
    calls_nothing: bool = False


class TurnFailure(Exception):
    """There is no answer. `charged`: the provider may have worked for it. `detail` has no secrets, and is bounded."""

    def __init__(
        self,
        category: TurnProblem,
        *,
        status: int = 0,
        retry_after_seconds: float | None = None,
        charged: bool = False,
        detail: str = "",
    ) -> None:
        self.category = category
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.charged = charged
        self.detail = cut(detail)
        super().__init__(f"{category.value} {status or ''}: {self.detail}")


class AgentsUnavailable(Exception):
    """No model can be asked here: `problem` is `extra_missing`, `model_unknown`, `credential_missing` or
    `price_unknown`.
    """

    def __init__(self, problem: str, detail: str = "") -> None:
        self.problem = problem
        super().__init__(f"{problem}: {detail}" if detail else problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPart:
    """What the model is told of one call; each call of an answer has exactly one. `outcome`: as the library has it."""

    call: int
    id: str
    tool: str
    text: str
    outcome: Literal["success", "failed", "denied", "interrupted"] = "success"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Bytes of a message: `media_type` says what they are."""

    media_type: str
    data: bytes = field(repr=False)


OnDelta = Callable[[Delta], Awaitable[None]]
BeforeSent = Callable[[], Awaitable[None]]


async def at_once() -> None:
    """Nothing has to be so before a request is sent."""


class Provider(Protocol):
    """One model, with what is needed to ask it."""

    async def turn(
        self,
        messages: Sequence[str],
        pins: Pins,
        settings: ModelSettings,
        *,
        on_delta: OnDelta,
        timeout_seconds: float,
        before_sent: BeforeSent = at_once,
    ) -> Answer:
        """One request. Raises TurnFailure, what `on_delta` and `before_sent` raise, and AgentsUnavailable without what
        the kind needs. Cancelling it closes the connection.

        `before_sent` is awaited before anything is sent, and nothing is if it raises; also more than once, if it takes
        longer than the request may.
        """


def cut(text: str) -> str:
    """One line, short enough to be kept; without what a store cannot hold."""
    line = " ".join(text.split()).replace("\x00", "").encode(errors="replace").decode()
    return line if len(line) <= DETAIL_LENGTH_MAX else line[: DETAIL_LENGTH_MAX - 1] + "…"
