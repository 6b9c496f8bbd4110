"""The model of all of them: a server on the wire of OpenAI that answers from a script at once.

model.py PORT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.agent_shapes import scripts
from placet.testing.model_servers import OpenAIServer


class _Forgetful(OpenAIServer):
    """Keeps nothing of what came: it is asked a hundred thousand times."""

    def _reply(self, heard: Any) -> Any:
        reply = super()._reply(heard)
        self.requests.clear()
        self._seen.clear()
        return reply


async def main(port: int) -> None:
    async with _Forgetful(scripts(), key="", port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
