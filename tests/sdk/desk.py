"""An app whose handlers do what tests need: count, wait, fail, and tell where they are through files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import placet

FOLDER_VARIABLE = "DESK_FOLDER"

app = placet.App("desk")


def mark(name: str) -> None:
    with Path(os.environ[FOLDER_VARIABLE], name).open("a") as file:
        file.write("x")


def marked(folder: Path, name: str, seconds: float = 30.0) -> None:
    """Blocks until the mark is there."""
    deadline = time.monotonic() + seconds
    while not (folder / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.01)


def marks(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text()) if path.exists() else 0


@app.tool("desk.add", "read", key="unsupported")
async def add(a: int, b: int) -> int:
    return a + b


@app.tool("desk.pay", "idempotent", effect_marked=True)
async def pay(context: placet.Context, amount: str) -> dict[str, str]:
    await context.effect()
    mark("pay")
    return {"paid": amount, "key": context.effect_key}


@app.tool("desk.tell", "unsafe", effect_marked=True)
def tell(context: placet.SyncContext, text: str) -> str:
    context.effect()
    mark("tell")
    return text


@app.tool("desk.mumble", "unsafe", effect_marked=True)
def mumble(context: placet.SyncContext, text: str) -> str:
    """Loses the answer of its provider, until a file `open` is there."""
    context.checkpoint(f"said {text}")
    if not Path(os.environ[FOLDER_VARIABLE], "open").exists():
        raise OSError("connection reset")
    return text


@app.tool("desk.decline", "idempotent")
async def decline(effect: str = "not_done", category: str = "permanent") -> None:
    mark("decline")
    raise placet.Failure("card_declined", "no", effect=effect, category=category)  # type: ignore[arg-type]


@app.tool("desk.post", "idempotent", effect_marked=True, attempts_max=2, retry_delay=0.01)
def post(context: placet.SyncContext, text: str) -> str:
    """Fails for the moment, until a file `open` is there."""
    mark("knock")
    if not Path(os.environ[FOLDER_VARIABLE], "open").exists():
        raise placet.Failure("closed", "come again", category="temporary", effect="not_done")
    context.effect()
    mark("post")
    return text


@app.tool("desk.wait", "idempotent", effect_marked=True)
@app.tool("desk.linger", "read")
async def wait(context: placet.Context) -> None:
    """Until it is stopped."""
    mark("waiting")
    try:
        await asyncio.Event().wait()
    finally:
        mark("stopped")


@app.tool("desk.count", "read", streaming=True)
async def count(context: placet.Context, to: int) -> int:
    """One chunk for each number; a file `go` lets it pass the middle."""
    for number in range(1, to + 1):
        await context.chunk(number)
        if number == to // 2:
            await asyncio.to_thread(marked, Path(os.environ[FOLDER_VARIABLE]), "go")
    return to
