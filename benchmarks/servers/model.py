"""The model of all of them: a server on the wire of OpenAI that answers from a script at once.

model.py PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.agent_shapes import PACE_SECONDS, PACED, PIECES, SPOKEN, clock_text, piece, scripts
from placet.testing.model_connection import _Reply
from placet.testing.model_servers import OpenAIServer, Say


class _Paced(_Reply):
    """Written one piece after the other."""


class _Forgetful(OpenAIServer):
    """Keeps nothing of what came: it is asked a hundred thousand times. One model says first when it began to speak,
    and one says so in each of its pieces.
    """

    def _reply(self, heard: Any) -> Any:
        reply = super()._reply(heard)
        self.requests.clear()
        self._seen.clear()
        return reply

    def _answer(self, step: Any, said: Any, body: Any, turn: int) -> Any:
        if body["model"] == SPOKEN:
            step = said = Say(f"{clock_text()} {'and so on ' * 20}")
        if body["model"] == PACED:
            return _Paced(200, b"", stream=True)
        return super()._answer(step, said, body, turn)

    async def _chunks(self, reply: Any) -> AsyncIterator[bytes]:
        if not isinstance(reply, _Paced):
            async for chunk in super()._chunks(reply):
                yield chunk
            return
        begin, said, *end = self._events(Say("@"), {"model": PACED}, 1)
        yield begin
        for number in range(PIECES):
            yield said.replace(b"@", piece(number).encode())
            await asyncio.sleep(PACE_SECONDS)
        yield b"".join(end)


async def main(port: int) -> None:
    async with _Forgetful(scripts(), key="", port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
