"""The same conversations with the provider's client and nothing else: nothing is kept.

agent_bare.py MODEL_URL whole|streamed
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from openai import AsyncOpenAI

from benchmarks.agent_shapes import ALIAS, ANSWER, ASKED, TOLD, TOOL_SCHEMA, look
from benchmarks.servers.agent_lane import serve

TOOLS: Any = [
    {"type": "function", "function": {"name": ALIAS, "description": TOLD, "parameters": TOOL_SCHEMA}}
]


async def main(url: str, how: str) -> None:
    ask = _streamed if how == "streamed" else _whole
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def run(shape: str) -> str:
            messages: list[Any] = [{"role": "user", "content": ASKED}]
            more = {} if shape == ANSWER else {"tools": TOOLS}
            while True:
                said = await ask(client, {"model": shape, "messages": messages, **more})
                messages.append(said)
                if not said.get("tool_calls"):
                    return str(said["content"])
                for each in said["tool_calls"]:
                    given = look(**json.loads(each["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": each["id"], "content": given})

        await serve(run)


async def _whole(client: AsyncOpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    answer = await client.chat.completions.create(**asked)
    message: dict[str, Any] = answer.choices[0].message.model_dump(exclude_none=True)
    return message


async def _streamed(client: AsyncOpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        delta = chunk.choices[0].delta
        said["content"] += delta.content or ""
        for call in delta.tool_calls or ():
            if call.id:
                calls.append({"id": call.id, "type": "function", "function": {"name": "", "arguments": ""}})
            calls[call.index]["function"]["name"] += call.function.name or ""
            calls[call.index]["function"]["arguments"] += call.function.arguments or ""
    return said | ({"tool_calls": calls} if calls else {})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
