"""Several people at one server: who asks, and those who decide, each with a command line of their own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import placet
from placet.testing import Server
from tests.cli.support import CommandLine, Ended

PEOPLE = ("anna:finance", "ben:finance", "carl:legal")
SAID = ("--reason", "it is right")

app = placet.App("till")


@app.tool(
    "till.refund",
    "idempotent",
    title="Refund",
    hazards=["financial"],
    approval="2 of role:finance; ttl=4h; evidence=reason",
    key_fields=["order", "amount"],
    input_bytes_max=3 * 1024 * 1024,
)
async def refund(order: str, amount: str = "19.90", note: str = "") -> dict[str, str]:
    return {"order": order, "amount": amount}


class Office:
    """Commands of `developer`, who asks, and of others by name."""

    def __init__(self, cli: CommandLine, running: Server, token_file: Path, monkeypatch: Any) -> None:
        self._cli = cli
        self._token_file = token_file
        self._environment = monkeypatch
        self.running = running

    def token_file(self, who: str = "") -> Path:
        return self._token_file.with_name(f"token.{who}") if who else self._token_file

    async def __call__(self, who: str, *arguments: str) -> Ended:
        self._environment.setenv("PLACET_TOKEN_FILE", str(self.token_file(who)))
        return await asyncio.to_thread(self._cli, *arguments)

    async def asked(self, order: str = "A-1", **more: Any) -> dict[str, Any]:
        """A new approval that waits, as a document."""
        text = json.dumps({"order": order, **more}, ensure_ascii=False)
        (self._token_file.parent / "input.json").write_text(text, encoding="utf-8")
        source = f"@{self._token_file.parent / 'input.json'}"
        submitted = await self("", "submit", "till.refund", source, "--label", "why=because", "--json")
        (wait,) = submitted.document["action"]["outcome"]["waits"]
        return dict((await self("anna", "show", wait["approval_id"], "--json")).document)

    async def state(self, action_id: str) -> str:
        return str((await self("", "show", action_id, "--json")).document["state"])


def named(found: dict[str, Any]) -> str:
    """An approval with what was looked at, as commands take it."""
    return f"{found['approval_id']}@{found['digest']}"
