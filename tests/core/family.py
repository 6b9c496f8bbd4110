"""A workshop in which `work.idempotent` (or another) calls, and everything else is called."""

from collections.abc import Awaitable, Callable
from typing import Any

from placet.context import Context
from tests.core.workshop import Workshop

Parent = Callable[[Context], Awaitable[Any]]


def family(parent: Parent, *, caller: str = "work.idempotent", child: Parent | None = None) -> Workshop:
    """`child`, if given, replaces what the others do: to count an effect and return the attempt."""
    shop = Workshop(attempts_max=3)

    async def script(context: Context) -> Any:
        if context.capability == caller:
            return await parent(context)
        if child is not None:
            return await child(context)
        shop.effects += 1
        return {"order": str(context.attempt)}

    shop.script = script
    return shop
