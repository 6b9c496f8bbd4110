"""RuntimeService: each RPC is a conversion in, one call into the core, a conversion out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.core.admission.execute import execute, execute_stream
from placet_server.core.admission.key import key_digest
from placet_server.core.admission.pipeline import Call
from placet_server.core.admission.resume import resume, resume_stream
from placet_server.core.admission.submit import Submitted, submit
from placet_server.core.admission.submit_batch import CHECKS_AT_A_TIME, submit_batch
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.cancel_many import cancel_many
from placet_server.core.execution.watched import watch_attached
from placet_server.core.kernel import Kernel
from placet_server.core.publication import read
from placet_server.core.publication.cursor import cursor_of
from placet_server.core.publication.descendants import watch_descendants
from placet_server.core.publication.family import with_effect_so_far
from placet_server.core.publication.feed import feed_lag, watch_events
from placet_server.core.publication.outcome import outcome_of
from placet_server.model.action import Action, OnWait, Submission
from placet_server.model.caller import OPERATOR_SCOPE, Caller
from placet_server.model.errors import FieldViolation, MalformedRequest, PlacetError
from placet_server.model.outcome import OutcomeKind
from placet_server.model.query import PAGE_SIZE_MAX
from placet_server.rpc.announcement import Announcer, announce_stream
from placet_server.rpc.ask import AskCalls
from placet_server.rpc.call import Rpc, closing, time_left
from placet_server.rpc.convert.action import action_message, query_of
from placet_server.rpc.convert.caller import caller_message
from placet_server.rpc.convert.enumeration import ACTION_STATE, DURABILITY, ON_WAIT
from placet_server.rpc.convert.event import event_message, feed_filter_of
from placet_server.rpc.convert.invocation import invocation_of, submission_of
from placet_server.rpc.convert.server import agent_support
from placet_server.rpc.convert.time import duration, seconds, timestamp
from placet_server.rpc.message import check_no_message, message_of
from placet_server.rpc.page import fitting, page_position, page_token
from placet_server.rpc.permission import may, permitted_rpcs
from placet_server.rpc.running import call_of, end_stream, fill_ended, fill_runs
from placet_server.rpc.status import outcome_trailers, status_message
from placet_server.rpc.validation import Validation

WAIT_SECONDS_DEFAULT = 30.0
_SUCCEEDED = OutcomeKind.SUCCEEDED.value
# What a long poll leaves of the caller's deadline for its answer.
REPLY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What GetServerInfo says besides what the kernel knows."""

    version: str
    store_version: str
    message_bytes_max: int
    name: str
    signing_keys: str


class RuntimeServicer(AskCalls):
    """Answers every RPC of the service; the layers have done everything else."""

    def __init__(self, kernel: Kernel, announcer: Announcer, facts: ServerFacts) -> None:
        self._kernel = kernel
        self._announcer = announcer
        self._facts = facts
        self._check_item = Validation().item_check_of(pb.SubmitRequest)

    async def execute(self, rpc: Rpc[pb.ExecuteRequest]) -> pb.ExecuteResponse:
        call = call_of(rpc, invocation_of(rpc.request.invocation), partial(self._announcer.admitted, rpc))
        done = await execute(self._kernel, call)
        rpc.action_id = done.action.action_id
        response = pb.ExecuteResponse(attached=done.attached)
        await fill_ended(self._kernel.journal, rpc, response.action, done.action)
        return response

    async def execute_stream(
        self, rpc: Rpc[pb.ExecuteStreamRequest]
    ) -> AsyncIterator[pb.ExecuteStreamResponse]:
        call = call_of(rpc, invocation_of(rpc.request.invocation))
        async with closing(execute_stream(self._kernel, call)) as events:
            async for event in events:
                if not rpc.action_id:
                    await announce_stream(rpc, event.action_id)
                yield pb.ExecuteStreamResponse(event=event_message(event))
        await end_stream(self._kernel.journal, rpc, call.invocation.on_wait)

    async def resume_action(self, rpc: Rpc[pb.ResumeActionRequest]) -> pb.ResumeActionResponse:
        rpc.action_id = rpc.request.action_id
        on_wait = ON_WAIT.get(rpc.request.on_wait, OnWait.FAIL)
        action = await resume(self._kernel, rpc.caller, rpc.action_id, time_left(rpc), rpc.trace, on_wait)
        response = pb.ResumeActionResponse()
        await fill_ended(self._kernel.journal, rpc, response.action, action)
        return response

    async def resume_action_stream(
        self, rpc: Rpc[pb.ResumeActionStreamRequest]
    ) -> AsyncIterator[pb.ResumeActionStreamResponse]:
        request = rpc.request
        rpc.action_id = request.action_id
        on_wait = ON_WAIT.get(request.on_wait, OnWait.FAIL)
        resumed = resume_stream(
            self._kernel,
            rpc.caller,
            request.action_id,
            request.after_cursor,
            time_left(rpc),
            rpc.trace,
            on_wait,
        )
        async with closing(resumed) as events:
            async for event in events:
                yield pb.ResumeActionStreamResponse(event=event_message(event))
        await end_stream(self._kernel.journal, rpc, on_wait)

    async def submit(self, rpc: Rpc[pb.SubmitRequest]) -> pb.SubmitResponse:
        request = rpc.request
        call = Call(
            caller=rpc.caller,
            invocation=invocation_of(request.invocation),
            time_left_seconds=time_left(rpc),
            message=message_of(rpc),
        )
        done = await submit(self._kernel, call, submission_of(request))
        rpc.action_id = done.action.action_id
        message = action_message(done.action, with_payloads=False)
        kind = outcome_of(done.action).kind.value
        rpc.context.set_trailing_metadata(outcome_trailers(kind, rpc.action_id))
        return pb.SubmitResponse(action=message, attached=done.attached)

    async def submit_batch(self, rpc: Rpc[pb.SubmitBatchRequest]) -> pb.SubmitBatchResponse:
        check_no_message(rpc)
        left = time_left(rpc)
        results: dict[int, Submitted | PlacetError] = {}
        calls: dict[int, tuple[Call, Submission]] = {}
        for index, item in enumerate(rpc.request.items):
            if index % CHECKS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            try:
                self._check_item(item)
                invocation = invocation_of(item.invocation)
                calls[index] = (Call(rpc.caller, invocation, left), submission_of(item))
            except PlacetError as error:
                results[index] = error
        answers = await submit_batch(self._kernel, list(calls.values()))
        results |= zip(calls, answers, strict=True)
        response = pb.SubmitBatchResponse()
        for index in sorted(results):
            _fill_result(response.results.add(), results[index])
        return response

    async def get_action(self, rpc: Rpc[pb.GetActionRequest]) -> pb.GetActionResponse:
        request = rpc.request
        full = request.view != action_pb2.ACTION_VIEW_BASIC
        if request.HasField("key"):
            action = await self._by_key(rpc.caller, request.key)
        else:
            action = await read.get_action(self._kernel.journal, rpc.caller, request.action_id, full=full)
        rpc.action_id = action.action_id
        action = await read.as_told(self._kernel.journal, action)
        message = action_message(action, with_payloads=full)
        await fill_runs(self._kernel.journal, rpc, [(message, action)])
        return pb.GetActionResponse(action=message)

    async def list_actions(self, rpc: Rpc[pb.ListActionsRequest]) -> pb.ListActionsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        query = query_of(request, page_position(request, tenant))
        page = await read.list_actions(self._kernel.journal, rpc.caller, query)
        told = [action_message(action) for action in page.actions]
        await fill_runs(self._kernel.journal, rpc, list(zip(told, page.actions, strict=True)))
        messages = fitting(told)
        is_whole = len(messages) == len(page.actions)
        position = page.next_after_action_id if is_whole else messages[-1].action_id
        return pb.ListActionsResponse(actions=messages, next_page_token=page_token(request, tenant, position))

    async def wait_action(self, rpc: Rpc[pb.WaitActionRequest]) -> pb.WaitActionResponse:
        request = rpc.request
        rpc.action_id = request.action_id
        wanted = seconds(request.timeout) if request.HasField("timeout") else WAIT_SECONDS_DEFAULT
        left = time_left(rpc)
        timeout_seconds = wanted if left is None else min(wanted, max(left - REPLY_SECONDS, 0.0))
        action = await read.wait_action(self._kernel.journal, rpc.caller, request.action_id, timeout_seconds)
        message = action_message(action)
        await fill_runs(self._kernel.journal, rpc, [(message, action)])
        return pb.WaitActionResponse(action=message)

    async def watch_action(self, rpc: Rpc[pb.WatchActionRequest]) -> AsyncIterator[pb.WatchActionResponse]:
        request, engine = rpc.request, self._kernel.engine
        if request.descendants:
            watched = watch_descendants(engine.journal, rpc.caller, request.action_id, request.after_cursor)
        else:
            watched = watch_attached(engine, rpc.caller, request.action_id, request.after_cursor)
        async with closing(watched) as events:
            async for event in events:
                if not rpc.action_id:
                    await announce_stream(rpc, request.action_id)
                yield pb.WatchActionResponse(event=event_message(event))

    async def watch_events(self, rpc: Rpc[pb.WatchEventsRequest]) -> AsyncIterator[pb.WatchEventsResponse]:
        request, journal = rpc.request, self._kernel.journal
        wanted = feed_filter_of(request.filter)
        feed = watch_events(journal, rpc.caller, request.after_cursor, wanted, from_now=request.from_now)
        async with closing(feed) as events:
            async for event in events:
                yield pb.WatchEventsResponse(event=event_message(event))

    async def cancel_action(self, rpc: Rpc[pb.CancelActionRequest]) -> pb.CancelActionResponse:
        request = rpc.request
        rpc.action_id = request.action_id
        action = await cancel_action(self._kernel.engine, rpc.caller, request.action_id, request.reason)
        action = await with_effect_so_far(self._kernel.journal, action)
        response = pb.CancelActionResponse(action=action_message(action))
        await fill_runs(self._kernel.journal, rpc, [(response.action, action)])
        return response

    async def cancel_actions(self, rpc: Rpc[pb.CancelActionsRequest]) -> pb.CancelActionsResponse:
        request, tenant = rpc.request, rpc.caller.tenant
        if not request.filter.ListFields():
            violation = FieldViolation(
                field="filter", rule="required", description="say which: without members it would match all"
            )
            raise MalformedRequest(violations=(violation,))
        query = query_of(request, page_position(request, tenant), PAGE_SIZE_MAX)
        done = await cancel_many(
            self._kernel.engine, rpc.caller, query, request.reason, validate_only=request.validate_only
        )
        return pb.CancelActionsResponse(
            matched=done.matched,
            marked=done.marked,
            ended=done.ended,
            next_page_token=page_token(request, tenant, done.next_after_action_id),
        )

    async def get_caller(self, rpc: Rpc[pb.GetCallerRequest]) -> pb.GetCallerResponse:
        return pb.GetCallerResponse(
            caller=caller_message(rpc.caller),
            permitted_rpcs=permitted_rpcs(rpc.caller),
            identity_source=rpc.caller.identity_source,
        )

    async def get_server_info(self, rpc: Rpc[pb.GetServerInfoRequest]) -> pb.GetServerInfoResponse:
        durability = self._kernel.durability
        lag = await feed_lag(self._kernel.journal)
        programs = self._kernel.engine.handlers.programs
        is_operator = may(rpc.caller, OPERATOR_SCOPE)
        models = await programs.models() if is_operator else ()
        problems = programs.problems_of_files() if is_operator else ()
        return pb.GetServerInfoResponse(
            version=self._facts.version,
            durability=DURABILITY[durability.class_],
            message_bytes_max=self._facts.message_bytes_max,
            store_time=timestamp(await read.now_us(self._kernel.journal)),
            store_version=self._facts.store_version,
            replication=durability.replication.value,
            boot_id=self._kernel.boot_id,
            lease=duration(self._kernel.lease_seconds),
            feed_lag=duration(lag.seconds),
            feed_epoch=lag.epoch,
            name=self._facts.name,
            signing_keys_json=self._facts.signing_keys,
            agents=agent_support(programs.are_here, models, self._kernel.catalog.budget_max, problems),
        )

    async def _by_key(self, caller: Caller, key: pb.KeyRef) -> Action:
        """Keys of the caller's own, and keys that the tenant shares."""
        digests = [
            key_digest(caller.tenant, key.capability, subject, key.idempotency_key)
            for subject in (caller.subject, "")
        ]
        return await read.get_action_by_digests(self._kernel.journal, caller, digests, key.idempotency_key)


def _fill_result(message: pb.SubmitBatchResult, result: Submitted | PlacetError) -> None:
    """In place: cheaper than messages that are copied into the answer."""
    if isinstance(result, PlacetError):
        message.error.CopyFrom(status_message(result))
        return
    action, submitted = result.action, message.submitted
    submitted.action_id = action.action_id
    submitted.state = ACTION_STATE[action.state]
    submitted.attached = result.attached
    submitted.cursor = cursor_of(action)
