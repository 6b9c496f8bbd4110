"""Agents under load, one for each conversation, one whose call waits for people, and two that are listened to."""

from __future__ import annotations

from datetime import timedelta

from benchmarks import agent_shapes
from placet.app import App

WAITING, SPEAKING, PACED = "bench.waiting", "bench.speaking", "bench.paced"

app = App("bench")


@app.tool(agent_shapes.TOOL, "idempotent", effect_key_ttl=timedelta(days=1), no_approval="it does nothing")
async def look(order: str) -> str:
    """Looks at an order."""
    return agent_shapes.look(order)


@app.tool("bench.approved", "unsafe", approval="1 of role:clerk")
async def approved(order: str) -> str:
    """Does nothing once somebody has said yes."""
    return order


for shape in agent_shapes.SHAPES:
    app.agent(f"bench.{shape}", model=shape, tools=[agent_shapes.TOOL])
app.agent(SPEAKING, model=agent_shapes.SPOKEN)
app.agent(PACED, model=agent_shapes.PACED)
app.agent(WAITING, model=agent_shapes.WAITS, tools=["bench.approved"])
