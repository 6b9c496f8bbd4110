"""LangGraph in its own process, with its Postgres checkpointer: a node that asks the model, and one task for each
call. Each step is durable before the next one begins (`durability="sync"`). The model is LangChain's, as LangGraph's
documents have it; or the provider's own client, which is less to run.

agent_langgraph.py DSN MODEL_URL chat|client
"""

from __future__ import annotations

import asyncio
import json
import operator
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from openai import AsyncOpenAI
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from pydantic import SecretStr

from benchmarks.agent_shapes import ALIAS, ANSWER, ASKED, SHAPES, TOLD, TOOL_SCHEMA, look
from benchmarks.servers.agent_lane import serve

TOOLS: Any = [
    {"type": "function", "function": {"name": ALIAS, "description": TOLD, "parameters": TOOL_SCHEMA}}
]


Ask = Callable[[str, list[Any]], Awaitable[Any]]


class State(TypedDict):
    shape: str
    messages: Annotated[list[Any], operator.add]


def graph(ask: Ask, saver: AsyncPostgresSaver) -> Any:
    async def model(state: State) -> dict[str, Any]:
        return {"messages": [await ask(state["shape"], state["messages"])]}

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        given = look(**call["args"])
        return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": given}]}

    def after(state: State) -> Any:
        calls = calls_of(state["messages"][-1])
        return [Send("tool", call) for call in calls] if calls else END

    made = StateGraph(State)
    made.add_node("model", model)
    made.add_node("tool", tool)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", after, ["tool", END])
    made.add_edge("tool", "model")
    return made.compile(checkpointer=saver)


def calls_of(message: Any) -> list[dict[str, Any]]:
    """With their arguments read."""
    if isinstance(message, AIMessage):
        return [dict(call) for call in message.tool_calls]
    return [
        {"id": call["id"], "args": json.loads(call["function"]["arguments"])}
        for call in message.get("tool_calls", ())
    ]


def asks_chat(url: str) -> Ask:
    """LangChain's model, bound to the tool."""
    chats: dict[str, Any] = {}
    for shape in SHAPES:
        chat = ChatOpenAI(model=shape, base_url=url, api_key=SecretStr("none"), max_retries=0)
        chats[shape] = chat if shape == ANSWER else chat.bind_tools(TOOLS)

    async def ask(shape: str, messages: list[Any]) -> Any:
        return await chats[shape].ainvoke(messages)

    return ask


def asks_client(url: str) -> Ask:
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def ask(shape: str, messages: list[Any]) -> Any:
        more = {} if shape == ANSWER else {"tools": TOOLS}
        answer = await client.chat.completions.create(model=shape, messages=messages, **more)
        return answer.choices[0].message.model_dump(exclude_none=True)

    return ask


async def main(dsn: str, url: str, how: str) -> None:
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=4, max_size=20, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        compiled = graph(asks_chat(url) if how == "chat" else asks_client(url), saver)

        async def run(shape: str) -> str:
            asked = {"shape": shape, "messages": [{"role": "user", "content": ASKED}]}
            config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": 100}
            ended = await compiled.ainvoke(asked, config, durability="sync")
            said = ended["messages"][-1]
            return str(said.content if isinstance(said, AIMessage) else said["content"])

        await serve(run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3]))
