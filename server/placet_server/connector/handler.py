"""A tool whose call is a conversation with a connector, and whose lookup is asked there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grpc.aio import AioRpcError

import placet.lookup as said
from placet.app import Tool
from placet.failure import Failure
from placet.lookup import Lookup, LookupContext
from placet.standing import AsyncStanding
from placet.v1 import action_pb2, capability_pb2
from placet.v1 import connector_service_pb2 as pb
from placet_server.connector.conversation import Answer, Conversation, not_done
from placet_server.connector.frames import start_frame
from placet_server.connector.link import Description, Link
from placet_server.connector.token import TokenSigner
from placet_server.core.execution.attempt import Attempt, attempt_of
from placet_server.core.execution.connectors import ConnectorFailure, OutputText
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.finding import Finding, NotCommitted, NotKnown, StillRunning
from placet_server.core.execution.invoke import MESSAGE_LENGTH_MAX, storable
from placet_server.core.execution.judgement import NOT_DONE
from placet_server.model.caller import CallerKind
from placet_server.model.json_text import canonicalize_value
from placet_server.rpc.convert.enumeration import CALLER_KIND

# A drain waits five seconds for what it has stopped.
SHUTDOWN_GRACE_SECONDS = 3.0


class RemoteHandler:
    """One version of a capability, where a manifest says it runs. `ended` counts how conversations end."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        signer: TokenSigner,
        link: Link,
        *,
        manifest: str,
        identity: tuple[str, str],
        digest: str,
        ended: Callable[[str], None],
    ) -> None:
        self.link = link
        self._engine = engine
        self._signer = signer
        self.manifest = manifest
        self._identity = identity
        self._digest = digest
        self._ended = ended
        name, version = identity
        self.tool = Tool(
            name=name,
            version=version,
            is_async=True,
            wants_context=True,
            streaming=True,
            cancellable=True,
            effect_marked=True,
            call=self.call,
            capability=capability_pb2.Capability(name=name, version=version),
            lookup=Lookup(is_async=True, call=self.look_up),
        )

    def room(self) -> int:
        return self.link.room() if self.is_backed(self.link.described) else 0

    @property
    def children_only(self) -> bool:
        return self.link.children_only

    def is_backed(self, described: Description | None) -> bool:
        """It is there, and serves the contract that was admitted."""
        return (
            described is not None
            and not described.is_draining
            and described.digests.get(self._identity) == self._digest
        )

    async def call(self, context: AsyncStanding, _: str) -> OutputText:
        """In the run's own task, which may be cancelled. Raises what went wrong there, as a handler would."""
        attempt = attempt_of(context)
        answer = await self._attempted(attempt)
        self._ended(_word(answer))
        if isinstance(answer, OutputText):
            return answer
        raise answer

    async def _attempted(self, attempt: Attempt) -> Answer:
        for is_last in (False, True):
            try:
                talk = await self._begin(attempt)
            except asyncio.CancelledError:
                if attempt.run.stop_cause is None:
                    raise
                return not_done("stopped", "it was stopped before the connector was asked.")
            except Failure as failure:
                return failure
            answer = await self._wait(attempt, talk)
            if talk.refused_by != "FAILED_PRECONDITION" or is_last:
                return answer
            # Another process answers at the address: it is asked what it serves.
            await self.link.describe()
        raise AssertionError

    async def _begin(self, attempt: Attempt) -> Conversation:
        """Raises ConnectorFailure."""
        link = self.link
        described = link.described if link.is_up else await link.describe()
        if described is None:
            raise not_done("not_reached", "it did not answer.")
        if described.is_draining:
            raise not_done("draining", "it takes nothing any more.")
        if not self.is_backed(described):
            raise not_done("contract_differs", "it serves another contract than was admitted.")
        left = attempt.time_left()
        wait_seconds = left if attempt.action.is_submitted else min(left, link.settings.accept_seconds)
        try:
            slot = await link.take(wait_seconds, is_child=attempt.action.parent_id is not None)
        except TimeoutError:
            raise not_done("full", "it runs as much as it can.") from None
        try:
            # While others had the slots another process may have come, or none.
            described = link.described
            if described is None or not self.is_backed(described):
                raise not_done("not_reached", "it does not answer any more.")
            frame = start_frame(attempt, boot_id=described.boot_id, token=self._token(attempt))
            talk = Conversation(self._engine(), link, slot, attempt, frame)
        except BaseException:
            slot.end()
            raise
        self._engine().supervisor.start(talk.run())
        return talk

    def _token(self, attempt: Attempt) -> str:
        return self._signer.token(
            "invoke",
            manifest=self.manifest,
            tenant=attempt.action.requester.tenant,
            action_id=attempt.action.action_id,
            attempt=attempt.action.attempt,
            capability=self._identity[0],
            version=self._identity[1],
            input_json=attempt.run.work.input_json,
            seconds=attempt.time_left(),
        )

    async def _wait(self, attempt: Attempt, talk: Conversation) -> Answer:
        try:
            await asyncio.wait((talk.answer,))
        except asyncio.CancelledError:
            cause = attempt.run.stop_cause
            if cause is None:
                raise
            if not talk.entered:
                talk.abandon()
                return not_done("stopped", "it was stopped before the connector began.")
            grace = self.link.settings.grace_seconds
            if cause is StopCause.SHUTDOWN:
                grace = min(grace, SHUTDOWN_GRACE_SECONDS)
            # Not waited for: a connector that does not read must not hold the attempt beyond its grace.
            self._engine().supervisor.start(talk.stop(cause.value, grace))
            await asyncio.wait((talk.answer,), timeout=grace)
            if not talk.answer.done():
                talk.give_up()
                self._ended("given_up")
                raise
        return talk.answer.result()

    async def look_up(self, context: LookupContext, text: str) -> said.Committed | Finding:
        described = self.link.described or await self.link.describe()
        if described is None:
            return NotKnown(message="The connector does not answer.")
        if described.digests.get(self._identity) != self._digest:
            return NotKnown(message="The connector serves another contract than was admitted.")
        request = self._question(context, text)
        try:
            answer = await self.link.stub.Lookup(request, timeout=max(0.001, context.time_left()))
        except AioRpcError as error:
            return NotKnown(message=f"The connector was asked, and ended with {error.code().name}.")
        found = finding_of(answer)
        if isinstance(found, NotKnown) and not described.handlers[self._identity].lookup:
            # The process that ran the attempt is gone, or has forgotten it; and there is nobody else to ask.
            return NotKnown(message=found.message, is_final=True)
        return found

    def _question(self, context: LookupContext, text: str) -> pb.LookupRequest:
        caller = context.caller
        cursor = context.provider_cursor
        name, version = self._identity
        token = self._signer.token(
            "lookup",
            manifest=self.manifest,
            tenant=caller.tenant,
            action_id=context.action_id,
            attempt=context.attempt,
            capability=name,
            version=version,
            input_json=text,
            seconds=context.time_left(),
        )
        return pb.LookupRequest(
            action_id=context.action_id,
            attempt=context.attempt,
            capability=name,
            version=version,
            input_json=text,
            effect_key=context.effect_key,
            provider_operation=context.provider_operation or "",
            provider_cursor_json=""
            if cursor is None
            else canonicalize_value(cursor, bytes_max=64 * 1024).text,
            invocation_token=token,
            caller=action_pb2.Caller(
                tenant=caller.tenant,
                subject=caller.subject,
                kind=CALLER_KIND[CallerKind(caller.kind.upper())],
                roles=caller.roles,
                groups=caller.groups,
                scopes=caller.scopes,
                delegation=[
                    action_pb2.Delegate(subject=each.subject, kind=CALLER_KIND[CallerKind(each.kind.upper())])
                    for each in caller.delegation
                ],
            ),
            credential_handle=context.credential_handle or "",
        )


def finding_of(answer: pb.LookupResponse) -> said.Committed | Finding:
    match answer.WhichOneof("finding"):
        case "committed":
            return said.Committed(OutputText(answer.committed.output_json))
        case "not_committed":
            found = answer.not_committed
            return NotCommitted(
                retryable=found.retryable,
                code=storable(found.code, 64) or NOT_DONE,
                message=storable(found.message, MESSAGE_LENGTH_MAX),
                not_running=answer.not_running,
            )
        case "still_running":
            return StillRunning()
        case "not_known":
            return NotKnown(message=storable(answer.not_known.message, MESSAGE_LENGTH_MAX))
        case _:
            return NotKnown(message="The connector's answer says nothing.")


def _word(answer: Answer) -> str:
    if isinstance(answer, OutputText):
        return "result"
    if isinstance(answer, ConnectorFailure):
        return "not_begun" if answer.effect == "not_done" else "lost"
    return "failure"
