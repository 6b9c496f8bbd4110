"""RuntimeService, what is of agents: asking one, and how its run went."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from placet.v1 import runtime_service_pb2 as pb
from placet_server.core.admission.ask import ask, ask_stream
from placet_server.core.kernel import Kernel
from placet_server.core.publication import read
from placet_server.core.publication.turn import list_turns
from placet_server.rpc.announcement import Announcer, announce_stream
from placet_server.rpc.call import Rpc, closing
from placet_server.rpc.convert.ask import invocation_of_ask, part_messages, turn_message
from placet_server.rpc.convert.event import event_message
from placet_server.rpc.page import fitting, page_position, page_token
from placet_server.rpc.running import call_of, end_stream, fill_ended

TURNS_DEFAULT = 50


class AskCalls:
    """The part of `RuntimeServicer` that answers them."""

    _kernel: Kernel
    _announcer: Announcer

    async def ask(self, rpc: Rpc[pb.AskRequest]) -> pb.AskResponse:
        call = call_of(rpc, invocation_of_ask(rpc.request), partial(self._announcer.admitted, rpc))
        done = await ask(self._kernel, call)
        rpc.action_id = done.action.action_id
        response = pb.AskResponse(attached=done.attached, parts=part_messages(done.parts))
        await fill_ended(self._kernel.journal, rpc, response.action, done.action)
        return response

    async def ask_stream(self, rpc: Rpc[pb.AskStreamRequest]) -> AsyncIterator[pb.AskStreamResponse]:
        call = call_of(rpc, invocation_of_ask(rpc.request.ask, within="ask."))
        async with closing(ask_stream(self._kernel, call)) as events:
            async for event in events:
                if not rpc.action_id:
                    await announce_stream(rpc, event.action_id)
                yield pb.AskStreamResponse(event=event_message(event))
        await end_stream(self._kernel.journal, rpc, call.invocation.on_wait)

    async def list_turns(self, rpc: Rpc[pb.ListTurnsRequest]) -> pb.ListTurnsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        rpc.action_id = request.action_id
        journal = self._kernel.journal
        after = int(page_position(request, tenant) or 0)
        action = await read.get_action(journal, rpc.caller, request.action_id, full=False)
        page = await list_turns(journal, action, after=after, page_size=request.page_size or TURNS_DEFAULT)
        turns = fitting(turn_message(turn, with_messages=request.with_messages) for turn in page.turns)
        is_whole = len(turns) == len(page.turns)
        position = page.next_after if is_whole else page.turns[len(turns) - 1].ordinal
        return pb.ListTurnsResponse(
            turns=turns, next_page_token=page_token(request, tenant, str(position) if position else "")
        )
