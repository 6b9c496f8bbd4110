"""What the asyncio client asks agents. `AsyncClient` has all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Unpack

from placet.agent import Budget
from placet.aio_sender import AsyncSender
from placet.ask_requests import ASK_SECONDS, Message, Reply, ask_agent, prepare_ask, turns_request
from placet.requests import CallArguments, CallOptions
from placet.retry import Deadline
from placet.stream import READ_SECONDS
from placet.v1 import runtime_service_pb2 as pb


class AsyncAskCalls(AsyncSender):
    """What it sends, beside all that the client does."""

    async def ask(
        self,
        agent: str,
        message: Message,
        *,
        arguments: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        timeout: float = ASK_SECONDS,
        **options: Unpack[CallArguments],
    ) -> Reply:
        """Ask an agent, and wait for its answer; `timeout` seconds bound that, and the run goes on beyond them.

        `message` is text, or parts of which each is text, a JsonPart or a BinaryPart. `arguments` are for the places in
        the agent's instructions. `budget` bounds what the run may spend, within what the agent and the server let it.
        The rest is as of `call`: with the same `key`, and the same message, it is the same run, whose model is not
        asked again. Raises what `call` does.
        """
        prepared = prepare_ask(agent, message, arguments, budget, CallOptions(**options))
        return await self._run(ask_agent(prepared, self._keyless, Deadline(timeout), self._policy))

    def turns(
        self,
        action_id: str,
        *,
        with_messages: bool = False,
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> AsyncIterator[pb.Turn]:
        """What a run has asked its model, and what came of it, in order; pages are fetched as needed."""
        request = turns_request(action_id, page_size, with_messages=with_messages)
        return self._pages("ListTurns", request, "turns", timeout)
