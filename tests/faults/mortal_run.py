"""A process that works off the runs of agents that it finds, and writes each request that its model gets into a file.

python -m tests.faults.mortal_run DSN FILE
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from placet_server.core.execution.stretch import Stretch
from placet_server.kernel_setup import kill_hook
from tests.core.kernels import QUEUE, open_kernel, work_off
from tests.core.scripted import Scripted

TURNS = (["plan.quick", "plan.find"], ["plan.quick"])


def script_with(ledger: Path) -> Scripted:
    async def provide(stretch: Stretch, turn: int) -> None:
        with ledger.open("a") as file:
            file.write(f"{turn}\n")

    return Scripted(*TURNS, provider=provide)


async def main(dsn: str, ledger: Path) -> None:
    script = script_with(ledger)
    hook = kill_hook(os.environ)
    async with open_kernel(dsn, script.app, queue=QUEUE, programs=script, boundary_hook=hook) as kernel:
        await work_off(kernel)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
