"""SessionService."""

from __future__ import annotations

from placet.v1 import session_service_pb2 as pb
from placet_server.core.admission.session import close_session, create_session
from placet_server.core.admission.session_token import resume_session
from placet_server.core.kernel import Kernel
from placet_server.core.publication.session import get_session, list_said, list_sessions
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.call import Rpc
from placet_server.rpc.convert.session import new_session_of, said_message, session_message
from placet_server.rpc.page import fitting, page_position, page_token, place_in_session, token_after


class SessionServicer:
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def create_session(self, rpc: Rpc[pb.CreateSessionRequest]) -> pb.CreateSessionResponse:
        made = await create_session(
            self._kernel.journal,
            rpc.caller,
            new_session_of(rpc.request),
            open_max=self._kernel.sessions_open_max,
        )
        return pb.CreateSessionResponse(session=session_message(made))

    async def get_session(self, rpc: Rpc[pb.GetSessionRequest]) -> pb.GetSessionResponse:
        found = await get_session(self._kernel.journal, rpc.caller, rpc.request.session_id)
        return pb.GetSessionResponse(session=session_message(found))

    async def list_sessions(self, rpc: Rpc[pb.ListSessionsRequest]) -> pb.ListSessionsResponse:
        request, caller = rpc.request, rpc.caller
        found = await list_sessions(
            self._kernel.journal,
            caller,
            before=page_position(request, caller.tenant),
            page_size=request.page_size or PAGE_SIZE_DEFAULT,
        )
        sessions = fitting(map(session_message, found))
        token = token_after(request, caller.tenant, sessions, len(found), lambda last: last.session_id)
        return pb.ListSessionsResponse(sessions=sessions, next_page_token=token)

    async def list_messages(self, rpc: Rpc[pb.ListMessagesRequest]) -> pb.ListMessagesResponse:
        request, caller = rpc.request, rpc.caller
        page = await list_said(
            self._kernel.journal,
            caller,
            request.session_id,
            after=place_in_session(request, caller.tenant),
            page_size=request.page_size or PAGE_SIZE_DEFAULT,
        )
        messages = fitting(map(said_message, page.said))
        after = page.next_after
        if len(messages) < len(page.said):
            last = page.said[len(messages) - 1]
            after = (last.number, last.ordinal)
        position = "" if after is None else f"{after[0]}:{after[1]}"
        token = page_token(request, caller.tenant, position)
        return pb.ListMessagesResponse(messages=messages, next_page_token=token)

    async def resume_session(self, rpc: Rpc[pb.ResumeSessionRequest]) -> pb.ResumeSessionResponse:
        request = rpc.request
        resumed = await resume_session(
            self._kernel.journal,
            rpc.caller,
            request.session_id,
            request.resume_token,
            key=request.idempotency_key,
        )
        return pb.ResumeSessionResponse(session=session_message(resumed))

    async def close_session(self, rpc: Rpc[pb.CloseSessionRequest]) -> pb.CloseSessionResponse:
        request = rpc.request
        closed = await close_session(
            self._kernel, rpc.caller, request.session_id, cancel=request.cancel_active
        )
        return pb.CloseSessionResponse(session=session_message(closed))
