"""Tools of a connector under test: they wait where a test wants them to, and tell what they were given."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import placet


class Errands:
    """An app, and what its handlers met. One for each test: nothing is shared."""

    def __init__(self) -> None:
        self.app = placet.App("desk")
        self.contexts: list[Any] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.thread_open = threading.Event()
        self.done = 0
        self.found: Any = placet.NotKnown("nobody has looked")
        self._declare()

    def _declare(self) -> None:
        app = self.app

        @app.tool("desk.read", "read")
        async def read(context: placet.Context, text: str = "") -> str:
            self._enter(context)
            await self.open.wait()
            self.done += 1
            return text

        @app.tool("desk.pay", "reconcilable", effect_marked=True)
        async def pay(context: placet.Context, amount: str) -> dict[str, str]:
            self._enter(context)
            key = await context.effect()
            assert key == await context.effect()
            await self.open.wait()
            self.done += 1
            return {"paid": amount, "key": key}

        @app.lookup("desk.pay")
        async def find(context: placet.LookupContext, amount: str) -> Any:
            self.contexts.append(context)
            if isinstance(self.found, BaseException):
                raise self.found
            return self.found

        @app.tool("desk.tell", "unsafe")
        def tell(context: placet.SyncContext, text: str, looks: bool = True) -> str:
            self._enter(context)
            while not self.thread_open.wait(0.005):
                if looks:
                    context.raise_if_cancelled()
            self.done += 1
            return text

        @app.tool("desk.run", "unsafe")
        async def run(context: placet.Context, what: str) -> Any:
            self._enter(context)
            return await self.runs[what](context)

        self.runs: dict[str, Any] = {}

    def _enter(self, context: Any) -> None:
        self.contexts.append(context)
        if isinstance(context, placet.SyncContext):
            context._loop.call_soon_threadsafe(self.entered.set)  # type: ignore[attr-defined]
        else:
            self.entered.set()
