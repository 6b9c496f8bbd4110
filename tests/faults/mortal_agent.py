"""A process that forks others, each of which works off the runs of agents that it finds, and may be killed at a
boundary: everything is imported once.

python -m tests.faults.mortal_agent DSN MODEL_ADDRESS PROVIDER_FILE

An order is a line on standard input: a boundary as PLACET_KILL_AT has it, or "-". Its answer is a line with how that
process ended.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path

from placet.testing.model_servers import KEY
from placet_server.harness.provider import kinds, request  # noqa: F401
from placet_server.harness.provider.catalogue import Kind
from placet_server.kernel_setup import kill_hook
from tests.core.agents import KEY_VARIABLE, open_served
from tests.core.kernels import work_off
from tests.faults.agent_desk import Desk


async def work(dsn: str, address: str, provider: str, boundary: str) -> None:
    hook = kill_hook({"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": boundary.strip("-")})
    os.environ[KEY_VARIABLE] = KEY
    desk = Desk(Path(provider))
    async with open_served(dsn, desk, Kind.OPENAI_COMPATIBLE, address, hook=hook) as kernel:
        await work_off(kernel)


def main(dsn: str, address: str, provider: str) -> None:
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(work(dsn, address, provider, line.strip()))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
