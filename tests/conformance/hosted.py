"""Something asynchronous, running in a thread and loop of its own beside tests that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

Made = TypeVar("Made")
START_SECONDS = 60.0


@contextmanager
def hosted(manager: AbstractAsyncContextManager[Made]) -> Iterator[Made]:
    """Enters it there, and leaves it at the end."""
    made: Future[tuple[Made, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def live() -> None:
        asked = asyncio.Event()
        try:
            async with manager as value:
                made.set_result((value, asyncio.get_running_loop(), asked))
                await asked.wait()
        except BaseException as error:
            if not made.done():
                made.set_exception(error)
            raise

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    value, loop, asked = made.result(START_SECONDS)
    try:
        yield value
    finally:
        loop.call_soon_threadsafe(asked.set)
        thread.join()
