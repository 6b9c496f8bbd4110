"""Agents of six turns and two: `desk.helper` reads, counts, pays and asks `desk.writer`; and `desk.clerk`, whose memory
is so small that it is summed up on the way. What its tools do is written into a file, as a provider would keep it that
outlives who asks: what is known there by its key does not happen again.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from placet.agent import Budget, DelegateChoice, Memory
from placet.app import App
from placet.context import Context
from placet.lookup import Committed, LookupContext, NotCommitted
from placet.testing.model_servers import Say, Step, call
from tests.core.test_run_too_long import script

HELPER = [
    Say("I look.", call("desk.find", order="A"), call("desk.count", order="A")),
    Say("I pay.", call("desk.pay", order="A")),
    Say("I count.", call("desk.count", order="B"), call("desk.count", order="C")),
    Say("I ask.", call("desk.writer", message="Word it.")),
    Say("I look again.", call("desk.find", order="B")),
    Say("Over."),
]
WRITER = [Say("I count, too.", call("desk.count", order="D")), Say("Dear Ann.")]
EFFECTS = Counter({"count A": 1, "pay A": 1, "count B": 1, "count C": 1, "count D": 1})
# Summed up after its second turn, but for that one.
CLERK = script(
    Say("I look.", call("desk-find", order="A"), call("desk-count", order="A"), usage=(100, 20)),
    Say("I count.", call("desk-count", order="B"), usage=(2000, 20)),
    Say("I count.", call("desk-count", order="C"), usage=(100, 20)),
    Say("Over."),
)
SCRIPTS: dict[str, list[Step]] = {"model-x": [*HELPER], "model-y": [*WRITER], "model-z": CLERK}
CLERKS_EFFECTS = Counter({"count A": 1, "count B": 1, "count C": 1})


class Desk:
    def __init__(self, provider: Path) -> None:
        self._provider = provider
        self.app = App("desk")
        budget = Budget(tokens=200_000)
        delegates = [DelegateChoice("desk.writer")]
        self.app.agent("desk.helper", model="test", tools=["desk.*"], delegates=delegates, budget=budget)
        self.app.agent("desk.writer", model="other", tools=["desk.count"])
        memory = Memory(compact_at_tokens=1000, keep_turns=1)
        self.app.agent("desk.clerk", model="third", tools=["desk.find", "desk.count"], memory=memory)

        @self.app.tool("desk.find", "read")
        async def find(order: str) -> str:
            return f"found {order}"

        @self.app.tool("desk.count", "idempotent")
        async def count(context: Context, order: str) -> str:
            return self._do(await context.effect(), f"count {order}")

        @self.app.tool(
            "desk.pay", "reconcilable", effect_marked=True, attempts_max=3, approval="1 of role:finance"
        )
        async def pay(context: Context, order: str) -> str:
            await context.effect()
            return self._do(context.effect_key, f"pay {order}")

        @self.app.lookup("desk.pay")
        async def look(context: LookupContext) -> Committed | NotCommitted:
            done = self._known().get(context.effect_key)
            return (
                NotCommitted(retryable=True, message="nobody was paid") if done is None else Committed(done)
            )

    def effects(self) -> Counter[str]:
        """How often each has happened."""
        return Counter(json.loads(line)[1] for line in self._lines())

    def _do(self, key: str, deed: str) -> str:
        if key not in self._known():
            with self._provider.open("a") as kept:
                kept.write(f"{json.dumps([key, deed])}\n")
        return deed

    def _known(self) -> dict[str, str]:
        return dict(json.loads(line) for line in self._lines())

    def _lines(self) -> list[str]:
        return self._provider.read_text().splitlines() if self._provider.exists() else []
