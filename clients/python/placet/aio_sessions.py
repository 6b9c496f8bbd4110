"""What the asyncio client asks about sessions. `AsyncClient` has all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from placet.aio_sender import AsyncSender
from placet.requests import Seconds
from placet.session_requests import create_request, resume_request
from placet.stream import CALL_SECONDS, READ_SECONDS
from placet.v1 import session_service_pb2 as pb


class AsyncSessionCalls(AsyncSender):
    """What it sends, beside all that the client does. Sessions are the caller's own: others' are not found."""

    async def create_session(
        self,
        agent: str = "",
        *,
        title: str = "",
        labels: Mapping[str, str] | None = None,
        idle_time: Seconds | None = None,
        key: str | None = None,
        timeout: float = READ_SECONDS,
    ) -> pb.Session:
        """Begin a conversation, with one agent or, without, with any: `ask(…, session=…)` goes on with it.

        Its `resume_token` is told this once. `idle_time`: after so long without a run it is over, 30 days if you do not
        say. The same `key` is the same session.
        """
        request = create_request(agent, title, labels, idle_time, key)
        response: pb.CreateSessionResponse = await self._ask("CreateSession", request, timeout)
        return response.session

    async def session(self, session_id: str, *, timeout: float = READ_SECONDS) -> pb.Session:
        """As it stands. Raises NotFoundError."""
        response: pb.GetSessionResponse = await self._ask(
            "GetSession", pb.GetSessionRequest(session_id=session_id), timeout
        )
        return response.session

    def sessions(self, *, page_size: int = 0, timeout: float = READ_SECONDS) -> AsyncIterator[pb.Session]:
        """Your own, newest first; pages are fetched as needed."""
        return self._pages("ListSessions", pb.ListSessionsRequest(page_size=page_size), "sessions", timeout)

    def messages(
        self, session_id: str, *, page_size: int = 0, timeout: float = READ_SECONDS
    ) -> AsyncIterator[pb.SessionMessage]:
        """What was said in it, oldest first; pages are fetched as needed."""
        request = pb.ListMessagesRequest(session_id=session_id, page_size=page_size)
        return self._pages("ListMessages", request, "messages", timeout)

    async def resume_session(
        self,
        session_id: str,
        resume_token: str,
        *,
        key: str | None = None,
        timeout: float = READ_SECONDS,
    ) -> pb.Session:
        """Go on with a session by its newest `resume_token`, which is good once; the answer has the next one. The same
        `key` is the same answer. Raises PermissionDeniedError if somebody else has gone on with it.
        """
        request = resume_request(session_id, resume_token, key)
        response: pb.ResumeSessionResponse = await self._ask("ResumeSession", request, timeout)
        return response.session

    async def close_session(
        self, session_id: str, *, cancel_active: bool = False, timeout: float = CALL_SECONDS
    ) -> pb.Session:
        """No run begins in it any more. Raises ConflictError if one is not over, unless that is to be cancelled."""
        request = pb.CloseSessionRequest(session_id=session_id, cancel_active=cancel_active)
        response: pb.CloseSessionResponse = await self._ask("CloseSession", request, timeout)
        return response.session
