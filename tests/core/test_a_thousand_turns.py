"""A run of many turns costs no more at its end than at its beginning: what is written, what is read again when it goes
on, and what the model is asked with stay within bounds. PLACET_LONG makes it a thousand.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from placet.agent import Memory
from placet_server.core.kernel import Kernel
from placet_server.harness.agent import Agents
from placet_server.harness.provider.answer import Answer, BeforeSent, Pins
from placet_server.harness.provider.catalogue import Kind, ModelEntry
from placet_server.model.entry import EntryType
from placet_server.model.lifecycle import ActionState
from placet_server.model.usage import Budget, Usage
from placet_server.rpc.convert.capability import capability_message
from placet_server.store import run as runs
from placet_server.store.batch import BatchWriter
from tests.core.agents import ASKED, Shop, said, spent
from tests.core.kernels import QUEUE, open_kernel, output, put, read, work_off
from tests.postgres import Database

TURNS, WINDOW = (1000, 100) if os.environ.get("PLACET_LONG") else (60, 20)
BOUND = 2000


class Tireless:
    """A model in memory that looks an order up in every turn, until it has done so often enough. `written`: how many
    statements there were when it was asked for each of them; `asked_bytes`: with how much.
    """

    def __init__(self, turns: int) -> None:
        self.entry = ModelEntry(name="test", kind=Kind.LOCAL, model="tireless")
        self.turns = turns
        self.statements = 0
        self.written: list[int] = []
        self.asked_bytes: list[int] = []
        self.summaries = 0

    def find(self, name: str, *, with_price: bool = False) -> ModelEntry:
        return self.entry

    def provider(self, name: str, tenant: str, handle: str = "") -> "Tireless":
        return self

    async def turn(
        self, messages: Sequence[str], pins: Pins, *_: Any, before_sent: BeforeSent, **__: Any
    ) -> Answer:
        await before_sent()
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

        from placet_server.harness.provider import wire

        size = sum(len(message) for message in messages)
        self.asked_bytes.append(size)
        parts: list[Any] = [
            TextPart(content="All were found." if len(self.written) >= self.turns else "Next.")
        ]
        if pins.calls_nothing:
            self.summaries += 1
            parts = [TextPart(content=f"Found so far: {len(self.written):04}.")]
        elif len(self.written) < self.turns:
            self.written.append(self.statements)
            number = len(self.written)
            parts.append(
                ToolCallPart("shop-find", {"order": f"A-{number:04}"}, tool_call_id=f"c-{number:04}")
            )
        answer = wire.answer_of(ModelResponse(parts=parts), None)
        return Answer(
            text=answer.text, said=answer.said, calls=answer.calls, usage=Usage(input_tokens=size // 3)
        )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Tireless:
    model = Tireless(TURNS)
    for name in ("append", "advance", "admit_child"):
        monkeypatch.setattr(BatchWriter, name, _counted(model, getattr(BatchWriter, name)))
    return model


def _counted(model: Tireless, write: Callable[[BatchWriter, Any], Any]) -> Callable[[BatchWriter, Any], Any]:
    def counted(writer: BatchWriter, item: Any) -> Any:
        model.statements += 1
        return write(writer, item)

    return counted


async def test_the_last_turns_cost_what_the_first_ones_did(database: Database, model: Tireless) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=BOUND, keep_turns=2))
    agents = Agents(model, Budget(), capability_message)  # type: ignore[arg-type]
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, programs=agents) as kernel:
        agents.attach(kernel.catalog)
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await work_off(kernel, 600.0)
        ended = await read(kernel, action.action_id)
        assert (ActionState.SUCCEEDED, said("All were found.")) == (ended.state, output(ended))
        assert model.summaries > 2
        assert TURNS + 1 + model.summaries == (await spent(kernel, ended.action_id)).turns
        written = [after - before for before, after in zip(model.written, model.written[1:], strict=False)]
        assert sum(written[-WINDOW:]) <= 1.2 * sum(written[:WINDOW])
        entries = await _bytes_of_turns(kernel, ended.action_id)
        assert sum(entries[-WINDOW:]) <= 1.2 * sum(entries[:WINDOW])
        assert max(model.asked_bytes) <= 3 * BOUND * 1.2
        async with kernel.journal.pool.connection() as connection:
            remembered = await runs.read_entries(connection, "acme", ended.action_id)
        assert [EntryType.OPENED, EntryType.COMPACTED] == [each.type for each in remembered.entries[:2]]
        assert len(remembered.entries) <= 2 + 3 * (len(model.asked_bytes) // model.summaries)


async def _bytes_of_turns(kernel: Kernel, action_id: str) -> list[int]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select sum(octet_length(body)) as bytes from run_entries where action_id = $1 and turn > 0 "
            "group by turn order by turn",
            action_id,
        )
    return [row["bytes"] for row in rows]
