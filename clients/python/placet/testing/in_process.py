"""A server in this process and loop."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.aio import AsyncClient
from placet.app import App
from placet.testing.address import Address, read_token_file
from placet.testing.model_connection import ModelServer
from placet.testing.scratch import database
from placet.testing.scripted import Called, Models, scripted
from placet.v1.error_reason_pb2 import ErrorReason
from placet.v1.event_pb2 import CallProblem

if TYPE_CHECKING:
    from placet_server.app import PlacetServer


class MovedClock:
    """The server's time: the database's until it is moved, from then on this machine's, and so much later."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime | None:
        return datetime.now(UTC) + self._ahead if self._ahead else None

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._ahead += timedelta(seconds=seconds)


class Server(Address):
    """In this process. `placet` is the server itself, `clock` its clock; `models` are scripted, by name, and have the
    `requests` that came.
    """

    def __init__(
        self, placet: PlacetServer, clock: MovedClock, token_file: Path, models: Mapping[str, ModelServer]
    ) -> None:
        super().__init__(read_token_file(token_file)[1])
        self.placet = placet
        self.clock = clock
        self.models = models
        self._token_file = token_file

    @property
    def target(self) -> str:
        return self.placet.target

    def person(self, name: str) -> AsyncClient:
        """A new client of somebody among the server's `people`, closed when the server is."""
        token = read_token_file(self._token_file.with_name(f"{self._token_file.name}.{name}"))[1]
        return self._connected(token)

    async def calls(self, action_id: str) -> list[Called]:
        """What the model of a run has called so far, turn by turn, and what came of it."""
        client = self.client()
        return [
            Called(
                turn=turn.turn,
                tool=call.tool,
                action=await client.get(call.action_id) if call.action_id else None,
                problem=_word(CallProblem.Name(call.problem), "CALL_PROBLEM_"),
                reason=_word(ErrorReason.Name(call.reason), "ERROR_REASON_"),
            )
            async for turn in client.turns(action_id)
            for call in turn.calls
        ]


def _word(name: str, prefix: str) -> str:
    """Of an enum value; "" for unspecified."""
    word = name.removeprefix(prefix)
    return "" if word == "UNSPECIFIED" else word


@asynccontextmanager
async def server(
    *apps: App, models: Models | None = None, people: Sequence[str] = (), **config: Any
) -> AsyncIterator[Server]:
    """A server of these apps in this process and loop.

    `models` are what agents may name, each with a script of what it says. `people` beside the developer, as
    "ben:finance+approver", are for `Server.person`. `config` are fields of `placet_server.config.Config`.
    """
    from placet_server.app import PlacetServer
    from placet_server.config import load_config

    clock = MovedClock()
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="placet-testing-")))
        fields: dict[str, Any] = {
            "port": 0,
            "health_port": 0,
            "identity_dev": True,
            "token_file": folder / "token",
        }
        if people:
            fields["dev_people"] = tuple(people)
        running_models: dict[str, ModelServer] = {}
        if models:
            running_models, of_models = await stack.enter_async_context(scripted(models, folder))
            fields |= of_models
        fields |= config
        placet = PlacetServer(load_config(dsn=dsn, **fields), apps=apps, clock=clock)
        await placet.start()
        stack.push_async_callback(placet.stop, 0)
        running = Server(placet, clock, Path(fields["token_file"]), running_models)
        stack.push_async_callback(running.close_clients)
        yield running
