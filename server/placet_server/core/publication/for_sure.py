"""Asking the store until it answers, for those who hold a run or a result and must not give it up because of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from placet_server.core.publication.journal import Journal
from placet_server.model.errors import StoreUnavailable

T = TypeVar("T")


async def for_sure(journal: Journal, ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` gives, however long the store is away. Each time it must be small enough for one use of a connection:
    what never fits is asked for without end.
    """
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(journal.poll_seconds)
