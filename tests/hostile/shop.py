"""The app of the server under attack: few tools, strict inputs, and none of its handlers may be entered by nonsense."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

import placet

app = placet.App("hostile")


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    item: Annotated[str, Field(pattern=r"^[a-z]{1,8}$")]
    amount: Annotated[int, Field(ge=1, le=9)]


@app.tool("hostile.echo", "read")
async def echo(text: str) -> str:
    return text


@app.tool("hostile.any", "read", input_schema={})
async def anything(value: Any) -> str:
    return "entered"


@app.tool("hostile.order", "idempotent")
async def order(lines: Annotated[list[Line], Field(max_length=100)]) -> int:
    return len(lines)


@app.tool("hostile.approved", "read", approval="1 of role:approver")
async def approved(text: str) -> str:
    return text


@app.tool("hostile.wait", "read")
async def wait(context: placet.Context) -> None:
    await context.wait_cancelled()
