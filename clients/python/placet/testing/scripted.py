"""Agents under test: models that say what a script says, and what their runs have called."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placet.testing.model_connection import KEY, ModelServer
from placet.testing.model_script import Script
from placet.testing.model_servers import OpenAIServer
from placet.v1.action_pb2 import Action

Models = Mapping[str, "Script | ModelServer"]
"""By name: a script, which an OpenAI-compatible server says, or a server that is not yet entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call of a run's model. `action`: what became of it; None for a call that was not made. `problem`: why, a
    CallProblem without its prefix: "TOOL_UNKNOWN", "ARGUMENTS_INVALID", …; or "REFUSED", by a gate, with `reason`, an
    ErrorReason without its prefix.
    """

    turn: int
    tool: str
    action: Action | None
    problem: str = ""
    reason: str = ""


@asynccontextmanager
async def scripted(
    models: Models, folder: Path
) -> AsyncIterator[tuple[dict[str, ModelServer], dict[str, Any]]]:
    """The servers by the names of their models, and what a server's configuration says of them."""
    key = folder / "model-key"
    key.write_text(KEY)
    running: dict[str, ModelServer] = {}
    async with AsyncExitStack() as stack:
        for name, said in models.items():
            running[name] = await stack.enter_async_context(
                said if isinstance(said, ModelServer) else OpenAIServer(said)
            )
        (folder / "models.toml").write_text("\n".join(_entry(name, each) for name, each in running.items()))
        (folder / "credentials.toml").write_text(f"[credentials.scripted]\nfile = {json.dumps(str(key))}\n")
        yield (
            running,
            {"model_file": folder / "models.toml", "credential_file": folder / "credentials.toml"},
        )


def _entry(name: str, server: ModelServer) -> str:
    kind = "openai_compatible" if server.wire == "openai" else server.wire
    members = {
        "kind": kind,
        "model": f"scripted-{name}",
        "base_url": server.base_url,
        "credential": "scripted",
    }
    lines = [f"{word} = {json.dumps(value)}" for word, value in members.items()]
    return "\n".join([f"[models.{json.dumps(name)}]", *lines, ""])
