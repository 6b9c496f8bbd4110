"""What a client asks agents. `Client` has all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Unpack

from placet.agent import Budget, InlineAgent
from placet.ask_requests import (
    ASK_SECONDS,
    Message,
    Reply,
    ask_agent,
    prepare_ask,
    reply_of,
    turns_request,
)
from placet.requests import CallArguments, CallOptions, OnWait
from placet.resume import resume
from placet.retry import Deadline
from placet.run_stream import RunFollower, RunStream
from placet.sender import Sender
from placet.stream import READ_SECONDS
from placet.v1 import runtime_service_pb2 as pb


class AskCalls(Sender):
    """What it sends, beside all that the client does."""

    def ask(
        self,
        agent: str | InlineAgent,
        message: Message,
        *,
        arguments: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        timeout: float = ASK_SECONDS,
        **options: Unpack[CallArguments],
    ) -> Reply:
        """Ask an agent, and wait for its answer; `timeout` seconds bound that, and the run goes on beyond them.

        `message` is text, or parts of which each is text, a JsonPart or a BinaryPart. `arguments` are for the places in
        the agent's instructions; an InlineAgent is one in no manifest. `budget` bounds what the run may spend, within
        what the agent and the server let it.
        `session`: the conversation that it goes on with; `on_busy`: "refuse", "queue" or "cancel_previous", if that has
        a run that is not over. The rest is as of `call`: with the same `key`, and the same message, it is the same run,
        whose model is not asked again. Raises what `call` does.
        """
        prepared = prepare_ask(agent, message, arguments, budget, CallOptions(**options))
        return self._run(ask_agent(prepared, self._keyless, Deadline(timeout), self._policy))

    def ask_stream(
        self,
        agent: str | InlineAgent,
        message: Message,
        *,
        arguments: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        timeout: float = ASK_SECONDS,
        **options: Unpack[CallArguments],
    ) -> RunStream:
        """As `ask`, heard while it runs: see `placet.run_stream` for what comes. `reply()` of it is the answer. Goes on
        after a broken connection where it was, at whichever server; leaving it stops nothing. Raises at the end what
        `ask` would."""
        prepared = prepare_ask(agent, message, arguments, budget, CallOptions(**options))
        return self._heard(
            RunFollower(Deadline(timeout), self._policy, prepared=prepared, on_wait=options.get("on_wait"))
        )

    def run_stream(
        self, action_id: str, *, after: str = "", on_wait: OnWait | None = None, timeout: float = ASK_SECONDS
    ) -> RunStream:
        """The same of a run that exists, after a cursor of it: joins whoever runs it, or has it run if nobody does."""
        follower = RunFollower(
            Deadline(timeout), self._policy, action_id=action_id, cursor=after, on_wait=on_wait
        )
        return self._heard(follower)

    def turns(
        self,
        action_id: str,
        *,
        with_messages: bool = False,
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> Iterator[pb.Turn]:
        """What a run has asked its model, and what came of it, in order; pages are fetched as needed."""
        request = turns_request(action_id, page_size, with_messages=with_messages)
        return self._pages("ListTurns", request, "turns", timeout)

    def _heard(self, follower: RunFollower) -> RunStream:
        def reply(timeout: float) -> Reply:
            steps = resume(follower.action_id, follower.on_wait, Deadline(timeout), self._policy)
            return reply_of(self._run(steps))

        def cancel(reason: str) -> None:
            request = pb.CancelActionRequest(action_id=follower.action_id, reason=reason)
            self._ask("CancelAction", request, READ_SECONDS)

        return RunStream(follower, self._events(follower), reply, cancel)
