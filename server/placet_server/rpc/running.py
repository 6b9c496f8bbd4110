"""What RPCs that run an action have in common: the call that they make, and how its action is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from placet.v1 import action_pb2
from placet_server.core.admission.pipeline import Call
from placet_server.core.publication import read
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.session import map_places
from placet_server.core.publication.turn import map_runs
from placet_server.model.action import Action, Invocation, OnWait
from placet_server.model.contract import EffectClass
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import OutcomeKind
from placet_server.rpc.call import Rpc, time_left
from placet_server.rpc.convert.action import action_message, fill_succeeded
from placet_server.rpc.convert.ask import fill_run
from placet_server.rpc.message import message_of
from placet_server.rpc.status import outcome_trailers

_SUCCEEDED = OutcomeKind.SUCCEEDED.value
_WAITING = OutcomeKind.WAITING.value


def call_of(rpc: Rpc[Any], invocation: Invocation, on_admitted: Callable[[str], None] | None = None) -> Call:
    """Of a caller who waits for its end. Raises DeadlineExceeded, MalformedRequest."""
    return Call(
        caller=rpc.caller,
        invocation=invocation,
        time_left_seconds=time_left(rpc),
        on_admitted=on_admitted,
        trace=rpc.trace,
        message=message_of(rpc),
    )


async def fill_ended(journal: Journal, rpc: Rpc[Any], message: action_pb2.Action, action: Action) -> None:
    """With an action that SUCCEEDED, or waits and that was to be returned; and the call's trailers."""
    if action.state is ActionState.SUCCEEDED:
        rpc.context.set_trailing_metadata(outcome_trailers(_SUCCEEDED, action.action_id))
        fill_succeeded(message, action)
    else:
        rpc.context.set_trailing_metadata(outcome_trailers(_WAITING, action.action_id))
        message.CopyFrom(action_message(action, with_payloads=False))
    # Nothing else can be a run.
    if action.effect_class == EffectClass.COMPOSED:
        await fill_runs(journal, rpc, [(message, action)])


async def end_stream(journal: Journal, rpc: Rpc[Any], on_wait: OnWait) -> None:
    """The trailers of one that ends OK: it SUCCEEDED, or waits and that was to be returned."""
    kind = _SUCCEEDED
    if on_wait is OnWait.RETURN:
        action = await read.get_action(journal, rpc.caller, rpc.action_id, full=False)
        kind = outcome_of(action).kind.value
    rpc.context.set_trailing_metadata(outcome_trailers(kind, rpc.action_id))


async def fill_runs(
    journal: Journal, rpc: Rpc[Any], told: Sequence[tuple[action_pb2.Action, Action]]
) -> None:
    """What those of them have spent that are runs of agents, and in which session they are."""
    tenant, actions = rpc.caller.tenant, [action for _, action in told]
    found = await map_runs(journal, tenant, actions)
    places = await map_places(journal, tenant, actions)
    for message, action in told:
        fill_run(message, found.get(action.action_id), places.get(action.action_id))
