"""What tests of asking models share: a provider for a scripted server, and runs of the real program in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from placet.testing.model_servers import AnthropicServer, ModelServer, OpenAIServer
from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.boundary import BoundaryName
from placet_server.harness import program
from placet_server.harness.provider.adapter import ModelProvider, Models
from placet_server.harness.provider.answer import Answer, Delta, Pins
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.harness.provider.credential import Credentials, parse
from placet_server.harness.replay import replay
from placet_server.harness.surroundings import Surroundings
from placet_server.harness.transcript import Transcript
from placet_server.model.action import Action
from placet_server.model.agent import AgentSpec, ModelSettings
from placet_server.model.caller import EVERY_SCOPE, Caller
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.contract import EffectClass, contract_for
from placet_server.model.entry import Entry, EntryRow, EntryType, Opened, PinnedTool
from placet_server.model.entry_text import entry_of
from placet_server.model.outcome import Outcome, OutcomeKind
from placet_server.model.usage import Budget, Counters
from placet_server.store.run import Remembered
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
Tool = Callable[[StepCall], ChildEnd]


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


class Died(Exception):
    """The process, with everything that is not stored."""


class Memory(Stretch):
    """A stretch whose entries are in memory, and whose calls are `tool`; nothing else of its attempt is asked for.
    `dies`: once something has come of what was asked, that is, between any two turns and any two tries.
    """

    def __init__(self, rows: list[EntryRow], tool: Tool, *, dies: bool, is_redriven: bool) -> None:
        caller = Caller(tenant="acme", subject="alice", scopes=frozenset({EVERY_SCOPE}))
        attempt: Any = SimpleNamespace(
            run=SimpleNamespace(work=SimpleNamespace(caller=caller), holdings=()),
            action=SimpleNamespace(capability="tests.agent", action_id="0199-run"),
            lane=SimpleNamespace(delta=self._heard, note=lambda type_, body: None),
            check_goes_on=lambda: None,
            may_have_children=False,
        )
        super().__init__(attempt)
        self.entries = MemoryEntries(rows, dies=dies, is_redriven=is_redriven)
        self._tool = tool

    def reached(self, boundary: BoundaryName) -> None:
        pass

    async def call_all(
        self,
        calls: Sequence[StepCall],
        told: Callable[[int, ChildEnd], None] = lambda index, end: None,
        stood: Callable[[int, Action], None] = lambda index, child: None,
    ) -> list[ChildEnd]:
        ends = [self._tool(call) for call in calls]
        for index, end in enumerate(ends):
            told(index, end)
        return ends

    async def _heard(self, turn: int, request: int, kind: str, text: str) -> None:
        pass


class MemoryEntries:
    """See `RunEntries`."""

    def __init__(self, rows: list[EntryRow], *, dies: bool, is_redriven: bool) -> None:
        self._rows = rows
        self._dies = dies
        self._is_redriven = is_redriven

    async def read(self) -> Remembered:
        return Remembered(list(self._rows), is_redriven=self._is_redriven)

    async def append(
        self, entry: Entry, counters: Counters, *, seen: Sequence[str] = (), ahead: bool = False
    ) -> None:
        row = EntryRow(
            type=entry.type, turn=entry.turn, body=entry.body, ordinal=len(self._rows) + 1, attempt=1
        )
        self._rows.append(row)
        if self._dies and entry.type is not EntryType.REQUESTED:
            raise Died

    async def begun(self) -> None:
        pass

    async def written(self) -> None:
        pass

    async def spent_below(self, steps: Sequence[str]) -> dict[str, Counters]:
        return {}

    async def spent_before(self) -> Counters:
        return Counters()

    async def has_run(self, active_ms: int) -> None:
        pass


class Journaled:
    """A run that has opened, of the real program. `dies`: see `Memory`; it is gone on with each time."""

    def __init__(
        self,
        models: Models,
        opened: Opened = OPENED,
        tool: Tool = lambda call: ended(),
        *,
        dies: bool = False,
    ) -> None:
        entry = entry_of(opened)
        self.rows = [EntryRow(type=entry.type, turn=0, body=entry.body, ordinal=1, attempt=1)]
        # Its tools are pinned already.
        nothing: Any = None
        self._around = Surroundings(models=models, offers=nothing, budget_max=Budget())
        self._capability = Capability(
            name="tests.agent",
            version="1",
            kind=CapabilityKind.AGENT,
            contract=contract_for(EffectClass.COMPOSED),
            agent=AgentSpec(model=opened.model),
        )
        self._tool = tool
        self._dies = dies

    @property
    def state(self) -> Transcript:
        return replay(self.rows)

    async def run(self, prompt: str, *, is_redriven: bool = False) -> str:
        """What it ends with. Raises Failure, Ended."""
        text = json.dumps({"parts": [{"text": prompt}]})
        while True:
            stretch = Memory(self.rows, self._tool, dies=self._dies, is_redriven=is_redriven)
            try:
                return (await program.run(self._around, stretch, self._capability, text)).text
            except Died:
                is_redriven = False
