"""Every test of calls runs against both clients: `Both` gives the blocking one the face of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from placet.aio import AsyncClient
from placet.client import Client
from placet.retry import RetryPolicy

QUICK = RetryPolicy(delay_seconds_min=0.001, delay_seconds_max=0.01)


class Both:
    """One client under test, awaited either way."""

    def __init__(self, kind: str, target: str) -> None:
        self.is_async = kind == "async"
        connect = AsyncClient.connect if self.is_async else Client.connect
        self.client: Any = connect(target, token="t", policy=QUICK)

    async def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        function = getattr(self.client, method)
        if self.is_async:
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)

    async def events(self, method: str, *arguments: Any, **options: Any) -> tuple[list[Any], Any, Any]:
        """The events, the stream, and what it raised."""
        stream = getattr(self.client, method)(*arguments, **options)
        seen: list[Any] = []
        try:
            if self.is_async:
                async for event in stream:
                    seen.append(event)
            else:
                await asyncio.to_thread(_drain, stream, seen)
        except Exception as error:
            return seen, stream, error
        return seen, stream, None

    async def pages(self, method: str, **options: Any) -> list[Any]:
        pages = getattr(self.client, method)(**options)
        if self.is_async:
            return [item async for item in pages]
        return await asyncio.to_thread(lambda: list(pages))

    async def close(self) -> None:
        for _ in range(2):
            if self.is_async:
                await self.client.close()
            else:
                self.client.close()


def _drain(stream: Any, seen: list[Any]) -> None:
    for event in stream:
        seen.append(event)


@pytest.fixture(params=["blocking", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Both]]:
    made: list[Both] = []

    def connect(target: str) -> Both:
        made.append(Both(request.param, target))
        return made[-1]

    yield connect
    for both in made:
        await both.close()
