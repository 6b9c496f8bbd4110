"""What tests of asking models share: a provider for a scripted server, and a run in memory that asks it as a real one
does, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from placet.testing.model_servers import AnthropicServer, ModelServer, OpenAIServer
from placet_server.core.execution.child import ChildEnd
from placet_server.harness.budget import bound_of_request
from placet_server.harness.plan import PlannedCall, plan
from placet_server.harness.provider.adapter import ModelProvider, Models
from placet_server.harness.provider.answer import Answer, Delta, Pins, TurnFailure
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.harness.provider.credential import Credentials, parse
from placet_server.harness.result import results_of
from placet_server.harness.transcript import Stage, Transcript, replay
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import Body, EntryRow, Failed, Opened, PinnedTool, Purpose, Requested, Told
from placet_server.model.entry_text import entry_of
from placet_server.model.outcome import Outcome, OutcomeKind
from placet_server.model.usage import Spent
from tests.harness.responses_server import ResponsesServer

WIRES: Mapping[str, type[ModelServer]] = {"openai": OpenAIServer, "anthropic": AnthropicServer}
ALL_WIRES: Mapping[str, type[ModelServer]] = {**WIRES, "openai_responses": ResponsesServer}
KINDS = {
    "openai": Kind.OPENAI_COMPATIBLE,
    "anthropic": Kind.ANTHROPIC,
    "openai_responses": Kind.OPENAI_RESPONSES,
}
KEY_VARIABLE = "PLACET_TEST_MODEL_KEY"
LOOKUP = PinnedTool(
    alias="orders-lookup",
    name="orders.lookup",
    version="1",
    contract_digest="00",
    description="What was ordered.",
    input_schema='{"type":"object","properties":{"order":{"type":"string"}},"required":["order"],"additionalProperties":false}',
)
REFUND = PinnedTool(
    alias="payments-refund",
    name="payments.refund",
    version="1",
    contract_digest="01",
    input_schema='{"type":"object","properties":{"order":{"type":"string"},"amount":{"type":"string"}},"required":["order","amount"]}',
)
OPENED = Opened(spec_digest="00", model="test", instructions="Be brief.", tools=(LOOKUP, REFUND))
SETTINGS = ModelSettings()


def credentials(variable: str = KEY_VARIABLE) -> Credentials:
    return parse({"credentials": {"test": {"env": variable}}})


def models_of(server: ModelServer, **entry: Any) -> Models:
    """One model, `test`. The key has to be in the environment: see the fixture `key`."""
    made: dict[str, Any] = {
        "name": "test",
        "kind": KINDS[server.wire],
        "model": "model-x",
        "base_url": server.base_url,
        "credential": "test",
        **entry,
    }
    return Models(lambda: Catalogue([ModelEntry(**made)]), credentials)


async def nobody(_: Delta) -> None:
    pass


async def asked(
    provider: ModelProvider, messages: Sequence[str], pins: Pins | None = None, seconds: float = 20.0
) -> Answer:
    wanted = Pins(instructions=OPENED.instructions, tools=OPENED.tools) if pins is None else pins
    return await provider.turn(messages, wanted, SETTINGS, on_delta=nobody, timeout_seconds=seconds)


def ended(kind: OutcomeKind = OutcomeKind.SUCCEEDED, output: str = '{"ok":true}', **outcome: Any) -> ChildEnd:
    return ChildEnd(Outcome(kind=kind, **outcome), output if kind is OutcomeKind.SUCCEEDED else None)


@dataclass
class Journaled:
    """A run whose entries are in memory. `lose`: makes the process forget everything but them, between any two."""

    provider: ModelProvider
    opened: Opened = OPENED
    tool: Callable[[PlannedCall], ChildEnd] = lambda _: ended()
    rows: list[EntryRow] = field(default_factory=list)
    forgets: bool = False
    state: Transcript = field(default_factory=Transcript)

    def append(self, body: Body) -> None:
        entry = entry_of(body)
        row = EntryRow(
            type=entry.type, turn=entry.turn, body=entry.body, ordinal=self.state.ordinal + 1, attempt=1
        )
        self.rows.append(row)
        self.state = replay(self.rows) if self.forgets else self.state.next(row)

    async def run(self, prompt: str) -> Transcript | Spent:
        from placet_server.harness.provider import wire
        from placet_server.harness.provider.adapter import load

        await load()
        if self.state.stage is Stage.OPEN:
            self.append(self.opened)
        while self.state.stage in (Stage.ASK, Stage.CALL):
            results, messages = self._told(wire, prompt)
            reserve = self.state.reserve(messages, None)
            turn, number = self.state.next_request
            passed = bound_of_request(self.state.counters, self.opened.budget, number, reserve)
            if passed is not None:
                return passed
            purpose = Purpose.REPAIR if self.state.repair else Purpose.ANSWER
            self.append(
                Requested(
                    turn=turn,
                    number=number,
                    purpose=purpose,
                    tokens=reserve.tokens,
                    results=results,
                    messages=tuple(messages),
                )
            )
            await self._ask()
        return self.state

    def _told(self, wire: Any, prompt: str) -> tuple[tuple[Told, ...], list[str]]:
        state = self.state
        if state.pending is not None:
            ends = {call.call: self.tool(call) for call in state.pending.steps}
            parts = results_of(state.pending, ends, sees_sensitive=True)
            told = tuple(
                Told(call=part.call, kind=ends[part.call].outcome.kind if part.call in ends else "")
                for part in parts
            )
            return told, [wire.request_text([state.repair] if state.repair else [], parts)]
        if state.turn == 0:
            return (), [wire.request_text([prompt])]
        return (), [wire.request_text([state.repair])] if state.repair else []

    async def _ask(self) -> None:
        turn, number = self.state.turn, self.state.tries
        pins = Pins(
            instructions=self.opened.instructions,
            tools=self.opened.tools,
            output_schema=self.opened.output_schema,
        )
        try:
            answer = await asked(self.provider, self.state.messages(), pins)
        except TurnFailure as failure:
            self.append(
                Failed(
                    turn=turn,
                    number=number,
                    category=failure.category,
                    status=failure.status,
                    charged=failure.charged,
                    detail=failure.detail,
                )
            )
            if not failure.category.is_temporary or number >= self.opened.retry.tries_max:
                raise
        else:
            self.append(
                plan(
                    answer,
                    self.opened,
                    turn=turn,
                    counters=self.state.counters,
                    equal=self.state.equal_calls(),
                )
            )
