"""Runs of an agent over a scripted server of models: the loop as it is, with nothing replaced but the model.

`shop.helper` may call `shop.find` (reads), `shop.count` (is done once for each order) and `shop.pay` (waits for a yes
of finance).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from placet.app import App
from placet.testing.model_servers import ModelServer, Say
from placet_server.agent_setup import attach_agents
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.kernel import Kernel
from placet_server.core.publication.boundary import Hook
from placet_server.core.publication.spent import spent_of
from placet_server.harness.agent import Agents
from placet_server.harness.observer import TurnCounts, Uncounted
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.harness.provider.credential import Source, parse
from placet_server.harness.tracing import RunTracing
from placet_server.model.action import Action
from placet_server.model.usage import Budget, Counters
from placet_server.rpc.convert.capability import capability_message
from placet_server.store.clock import Clock
from tests.core.kernels import QUEUE, open_kernel, put, read, work_off

ASKED = {"parts": [{"text": "Help me."}]}
TOOLS = ("shop.count", "shop.find", "shop.pay")
KEY_VARIABLE = "PLACET_TEST_MODEL_KEY"


class Served(Protocol):
    @property
    def app(self) -> App: ...


class Shop:
    """Its app, and what its tools have done: orders, in their order. `options`: of the agent."""

    def __init__(self, **options: Any) -> None:
        self.counted: list[str] = []
        self.paid: list[str] = []
        self.app = App("shop")
        wanted = {"model": "test", "tools": TOOLS, "instructions": "Be brief."}
        self.app.agent("shop.helper", **(wanted | options))

        @self.app.tool("shop.find", "read")
        async def find(order: str) -> str:
            return f"found {order}"

        @self.app.tool("shop.count", "idempotent")
        async def count(order: str) -> str:
            self.counted.append(order)
            return f"counted {order}"

        @self.app.tool("shop.pay", "unsafe", approval="1 of role:finance")
        async def pay(order: str) -> str:
            self.paid.append(order)
            return f"paid {order}"


def models_at(kind: Kind, address: str, **entry: Any) -> Models:
    """The models `test`, `other` and `third`, with the key that scripted servers want."""
    made: dict[str, Any] = {
        "kind": kind,
        "base_url": address,
        "key": Source(env=KEY_VARIABLE),
        **entry,
    }
    known = [
        ModelEntry(name="test", model="model-x", **made),
        ModelEntry(name="other", model="model-y", **made),
        ModelEntry(name="third", model="model-z", **made),
    ]
    return Models(lambda: Catalogue(known), lambda: parse({}))


def open_shop(
    dsn: str, shop: Served, server: ModelServer, **options: Any
) -> AbstractAsyncContextManager[Kernel]:
    """With this model."""
    kind = Kind.OPENAI_COMPATIBLE if server.wire == "openai" else Kind.ANTHROPIC
    return open_served(dsn, shop, kind, server.base_url, **options)


@asynccontextmanager
async def open_served(
    dsn: str,
    shop: Served,
    kind: Kind,
    address: str,
    *,
    budget_max: Budget | None = None,
    queue: QueueSettings = QUEUE,
    questions: bool = False,
    hook: Hook | None = None,
    clock: Clock | None = None,
    counts: TurnCounts | None = None,
    tracing: RunTracing | None = None,
    **entry: Any,
) -> AsyncIterator[Kernel]:
    """`entry`: members of the model's. Leaving the block is a crash."""
    models = models_at(kind, address, **entry)
    agents = Agents(models, budget_max or Budget(), capability_message)
    try:
        async with open_kernel(
            dsn,
            shop.app,
            queue=queue,
            questions=questions,
            programs=agents,
            boundary_hook=hook,
            clock=clock,
        ) as kernel:
            attach_agents(kernel, agents, counts or Uncounted(), tracing)
            yield kernel
    finally:
        await models.close()


async def asked(kernel: Kernel, key: str = "k", value: Any = ASKED, **options: Any) -> Action:
    """The run as it stands once nothing can go on."""
    action = (await put(kernel, "shop.helper", value, key, **options)).action
    await work_off(kernel)
    return await read(kernel, action.action_id)


async def spent(kernel: Kernel, action_id: str) -> Counters:
    async with kernel.journal.pool.connection() as connection:
        return (await spent_of(connection, "acme", [action_id]))[action_id].counters


def end_of(wire: type[ModelServer], say: Say, words: str, *, model: str = "model-x") -> int:
    """How many bytes of the answer there are until it has said so much."""
    told = b""
    for event in wire([say])._events(say, {"model": model}, 1):
        told += event
        if words.encode() in event:
            return len(told)
    raise AssertionError(f"never says {words!r}")


def said(text: str) -> dict[str, Any]:
    """The output of a run that has ended with it."""
    return {"parts": [{"text": text}]}
