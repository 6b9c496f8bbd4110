"""The app that client programs call: its handlers answer, fail, wait, and say where they are."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

import placet

SECRET = "postgres://admin:hunter2@10.0.0.7"

app = placet.App("desk")
# By a name that the test chose: set when a handler has begun, and when it was cancelled.
begun: defaultdict[str, threading.Event] = defaultdict(threading.Event)
cancelled: defaultdict[str, threading.Event] = defaultdict(threading.Event)


@app.tool("desk.echo", "read")
async def echo(text: str) -> str:
    return text


@app.tool("desk.keyless", "read", key="unsupported")
async def keyless() -> None:
    return None


@app.tool("desk.pay", "idempotent", effect_marked=True)
async def pay(context: placet.Context, amount: str) -> dict[str, str]:
    await context.effect()
    return {"paid": amount}


@app.tool("desk.transfer", "idempotent", approval="1 of user:developer; requester=may; ttl=1h")
async def transfer(amount: str) -> dict[str, str]:
    return {"transferred": amount}


@app.tool("desk.settle", "composed")
async def settle(context: placet.Context) -> Any:
    """Waits for its step, to which people have to say yes."""
    return await context.call("pay", "desk.transfer", {"amount": "1"})


@app.tool("desk.decline", "idempotent", effect_marked=True)
async def decline(context: placet.Context) -> None:
    raise placet.Failure("card_declined", "the bank said no", effect="not_done")


@app.tool("desk.stumble", "idempotent", effect_marked=True)
async def stumble(context: placet.Context) -> None:
    raise placet.Failure("bank_busy", "later", category="temporary", effect="not_done", retry_delay=2.5)


@app.tool("desk.stumble_once", "idempotent", effect_marked=True, attempts_max=1)
async def stumble_once(context: placet.Context) -> None:
    raise placet.Failure("bank_busy", "later", category="temporary", effect="not_done")


@app.tool("desk.hurried", "idempotent", queue_delay_max=0.05)
async def hurried() -> None:
    return None


@app.tool("desk.crash", "unsafe")
async def crash() -> None:
    raise RuntimeError(f"cannot reach {SECRET}")


@app.tool("desk.lie", "read", output_schema={"type": "integer"})
async def lie() -> object:
    return "no integer"


@app.tool("desk.wait", "read", streaming=True)
async def wait(context: placet.Context, name: str) -> None:
    begun[name].set()
    try:
        await context.wait_cancelled()
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled[name].set()
        raise


@app.tool("desk.count", "read", streaming=True)
async def count(context: placet.Context, to: int) -> int:
    for number in range(1, to + 1):
        await context.chunk({"n": number, "text": "naïve √ 🚀"})
        await context.progress(f"{number} of {to}", number / to)
    return to


@app.tool("desk.count_and_fail", "read", streaming=True)
async def count_and_fail(context: placet.Context) -> None:
    await context.chunk("half")
    raise placet.Failure("out_of_paper", "one page", effect="not_done")
