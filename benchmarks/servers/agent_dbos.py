"""Pydantic AI on DBOS in its own process: a run is a workflow, each request and each call a step of it.

agent_dbos.py DSN MODEL_URL
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks import agent_shapes
from benchmarks.servers.agent_lane import serve


async def look(order: str) -> str:
    """Looks at an order."""
    return agent_shapes.look(order)


durable_look = DBOS.step()(look)


def agent_of(shape: str, client: AsyncOpenAI) -> Agent[Any, str]:
    model = OpenAIChatModel(shape, provider=OpenAIProvider(openai_client=client))
    tools = [] if shape == agent_shapes.ANSWER else [Tool(durable_look, name=agent_shapes.ALIAS)]
    return Agent(model, name=f"bench_{shape}", tools=tools, capabilities=[DBOSDurability()])


async def main(dsn: str, url: str) -> None:
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": dsn,
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        agents = {shape: agent_of(shape, client) for shape in agent_shapes.SHAPES}

        async def ask(shape: str) -> str:
            return str((await agents[shape].run(agent_shapes.ASKED)).output)

        durable_ask = DBOS.workflow()(ask)

        DBOS.launch()

        async def run(shape: str) -> str:
            with SetWorkflowID(uuid.uuid4().hex):
                return str(await durable_ask(shape))

        await serve(run)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
