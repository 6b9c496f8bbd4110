"""A client that asks agents of a Placet server, each time with a key.

agent_placet.py ADDRESS TOKEN
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.agent_shapes import ASKED
from benchmarks.servers.agent_lane import serve
from placet.aio import AsyncClient


async def main(address: str, token: str) -> None:
    async with AsyncClient.connect(address, token=token) as client:

        async def run(shape: str) -> str:
            return (await client.ask(f"bench.{shape}", ASKED, key=uuid.uuid4().hex)).text

        await serve(run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
