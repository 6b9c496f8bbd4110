"""The model of all of them: a server on the wire of OpenAI that answers from a script at once.

model.py PORT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.agent_shapes import SPOKEN, clock_text, scripts
from placet.testing.model_servers import OpenAIServer, Say


class _Forgetful(OpenAIServer):
    """Keeps nothing of what came: it is asked a hundred thousand times. One model says first when it began to speak."""

    def _reply(self, heard: Any) -> Any:
        reply = super()._reply(heard)
        self.requests.clear()
        self._seen.clear()
        return reply

    def _answer(self, step: Any, said: Any, body: Any, turn: int) -> Any:
        if body["model"] == SPOKEN:
            step = said = Say(f"{clock_text()} {'and so on ' * 20}")
        return super()._answer(step, said, body, turn)


async def main(port: int) -> None:
    async with _Forgetful(scripts(), key="", port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
