"""RuntimeService, what is of agents: asking one, and how its run went."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.core.admission.ask import ask, ask_stream
from placet_server.core.admission.pipeline import Call
from placet_server.core.kernel import Kernel
from placet_server.core.publication import read
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.session import map_places
from placet_server.core.publication.turn import list_turns, map_runs
from placet_server.model.action import Action, OnWait
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import OutcomeKind
from placet_server.rpc.announcement import Announcer, announce_stream
from placet_server.rpc.call import Rpc, closing, time_left
from placet_server.rpc.convert.action import action_message, fill_succeeded
from placet_server.rpc.convert.ask import fill_run, invocation_of_ask, part_messages, turn_message
from placet_server.rpc.convert.event import event_message
from placet_server.rpc.message import message_of
from placet_server.rpc.page import fitting, page_position, page_token
from placet_server.rpc.status import outcome_trailers

TURNS_DEFAULT = 50
_SUCCEEDED = OutcomeKind.SUCCEEDED.value
_WAITING = OutcomeKind.WAITING.value


class AskCalls:
    """Mixed into the servicer."""

    _kernel: Kernel
    _announcer: Announcer

    async def ask(self, rpc: Rpc[pb.AskRequest]) -> pb.AskResponse:
        call = Call(
            caller=rpc.caller,
            invocation=invocation_of_ask(rpc.request),
            time_left_seconds=time_left(rpc),
            trace=rpc.trace,
            on_admitted=partial(self._announcer.admitted, rpc),
            message=message_of(rpc),
        )
        done = await ask(self._kernel, call)
        rpc.action_id = done.action.action_id
        response = pb.AskResponse(attached=done.attached, parts=part_messages(done.parts))
        fill_answer(rpc, response.action, done.action)
        await self._fill_runs(rpc, [(response.action, done.action)])
        return response

    async def ask_stream(self, rpc: Rpc[pb.AskStreamRequest]) -> AsyncIterator[pb.AskStreamResponse]:
        call = Call(
            caller=rpc.caller,
            invocation=invocation_of_ask(rpc.request.ask, within="ask."),
            time_left_seconds=time_left(rpc),
            trace=rpc.trace,
            message=message_of(rpc),
        )
        async with closing(ask_stream(self._kernel, call)) as events:
            async for event in events:
                if not rpc.action_id:
                    await announce_stream(rpc, event.action_id)
                yield pb.AskStreamResponse(event=event_message(event))
        await self._end_stream(rpc, call.invocation.on_wait)

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

    async def _end_stream(self, rpc: Rpc[Any], on_wait: OnWait) -> None:
        """The trailers of one that ends OK: it SUCCEEDED, or waits and that was to be returned."""
        kind = _SUCCEEDED
        if on_wait is OnWait.RETURN:
            action = await read.get_action(self._kernel.journal, rpc.caller, rpc.action_id, full=False)
            kind = outcome_of(action).kind.value
        rpc.context.set_trailing_metadata(outcome_trailers(kind, rpc.action_id))

    async def _fill_runs(self, rpc: Rpc[Any], told: list[tuple[action_pb2.Action, Action]]) -> None:
        """What those of them have spent that are runs of agents, and in which session they are."""
        journal, tenant, actions = self._kernel.journal, rpc.caller.tenant, [action for _, action in told]
        found = await map_runs(journal, tenant, actions)
        places = await map_places(journal, tenant, actions)
        for message, action in told:
            fill_run(message, found.get(action.action_id), places.get(action.action_id))


def fill_answer(rpc: Rpc[Any], message: action_pb2.Action, action: Action) -> None:
    """Of a call that runs it, and its trailers."""
    if action.state is ActionState.SUCCEEDED:
        rpc.context.set_trailing_metadata(outcome_trailers(_SUCCEEDED, action.action_id))
        fill_succeeded(message, action)
    else:
        rpc.context.set_trailing_metadata(outcome_trailers(_WAITING, action.action_id))
        message.CopyFrom(action_message(action, with_payloads=False))
