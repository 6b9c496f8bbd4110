"""A process that forks others, each of which works off the runs of agents that it finds, and may be killed at a
boundary: everything is imported once.

python -m tests.faults.mortal_agent DSN MODEL_ADDRESS

An order is a line on standard input: a boundary as PLACET_KILL_AT has it, or "-". Its answer is a line with how that
process ended.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

from placet.testing.model_servers import KEY
from placet_server.harness.provider import kinds, request  # noqa: F401
from placet_server.harness.provider.catalogue import Kind
from placet_server.kernel_setup import kill_hook
from tests.core.agents import KEY_VARIABLE, Shop, open_served
from tests.core.kernels import work_off


async def work(dsn: str, address: str, boundary: str) -> None:
    hook = kill_hook({"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": boundary.strip("-")})
    os.environ[KEY_VARIABLE] = KEY
    async with open_served(dsn, Shop(), Kind.OPENAI_COMPATIBLE, address, hook=hook) as kernel:
        await work_off(kernel)


def main(dsn: str, address: str) -> None:
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(work(dsn, address, line.strip()))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
