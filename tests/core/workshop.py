"""An app with a tool of every effect class, whose handlers wait at a gate and count what they did."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from placet.app import App
from placet.context import Context
from placet.lookup import LookupContext, NotKnown

CLASSES = ("read", "idempotent", "reconcilable", "unsafe")
MARKED = ("idempotent_marked", "reconcilable_marked", "unsafe_marked")

Script = Callable[[Context], Awaitable[Any]]
Find = Callable[[LookupContext], Awaitable[Any]]


class Workshop:
    """Tools `work.<class>`, also of "composed", and `work.<class>_marked`.

    Each handler says that it began, waits at the gate, counts its effect and returns its order. `touch`: marked
    handlers mark before they wait. `script`, if set, replaces what follows. `find` looks up what can be, and knows
    nothing unless it is set; `questions` are what it was given."""

    def __init__(self, **options: Any) -> None:
        self.attempts: list[int] = []
        self.effects = 0
        self.at_once = 0
        self.at_once_max = 0
        self.touch = True
        self.script: Script | None = None
        self.find: Find | None = None
        self.questions: list[LookupContext] = []
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.app = App("workshop")
        for effect in CLASSES:
            self._add(effect, marked=False, options=options)
        self._add("composed", marked=False, options=options)
        for name in MARKED:
            self._add(name.removesuffix("_marked"), marked=True, options=options)

    def _add(self, effect: Any, *, marked: bool, options: dict[str, Any]) -> None:
        limits = {
            name: value
            for name, value in options.items()
            if (name != "attempts_max" or effect in ("read", "composed", "idempotent"))
            and (not name.startswith("reconcile") or effect == "reconcilable")
        }
        name = f"work.{effect}_marked" if marked else f"work.{effect}"

        @self.app.tool(name, effect, effect_marked=marked, streaming=True, **limits)
        async def work(context: Context, order: str = "1") -> Any:
            self.attempts.append(context.attempt)
            self.at_once += 1
            self.at_once_max = max(self.at_once, self.at_once_max)
            try:
                if marked and self.touch:
                    await context.effect()
                self.began.set()
                if self.script is not None:
                    return await self.script(context)
                await self.gate.wait()
                self.effects += 1
                return {"order": order}
            finally:
                self.at_once -= 1

        if effect == "reconcilable":

            @self.app.lookup(name)
            async def find(context: LookupContext) -> Any:
                self.questions.append(context)
                return NotKnown() if self.find is None else await self.find(context)
