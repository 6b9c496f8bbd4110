"""A gRPC server that answers from a script: what no healthy server does, a client must survive all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from placet.errors import Violation
from placet.v1 import action_pb2, error_reason_pb2, event_pb2, outcome_pb2, runtime_service_pb2
from placet.v1.operations_service_pb2_grpc import (
    OperationsServiceServicer,
    add_OperationsServiceServicer_to_server,
)
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceServicer, add_RecoveryServiceServicer_to_server
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server

ACTION_ID = "0199b0c0-0000-7000-8000-000000000001"

Context: TypeAlias = Any
# Answers a request, or aborts the context.
Answer: TypeAlias = Callable[[Any, Context], Awaitable[Any]]


def details(
    reason: str,
    *,
    code: grpc.StatusCode,
    domain: str = "placet.dev",
    metadata: dict[str, str] | None = None,
    outcome: outcome_pb2.Outcome | None = None,
    retry_delay_seconds: float | None = None,
    violations: Sequence[Violation] = (),
) -> bytes:
    """The trailer that carries google.rpc.Status."""
    packed = [_any(error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata or {}))]
    if outcome is not None:
        packed.append(_any(outcome))
    if retry_delay_seconds is not None:
        delay = duration_pb2.Duration(nanos=int(retry_delay_seconds * 1e9))
        packed.append(_any(error_details_pb2.RetryInfo(retry_delay=delay)))
    if violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(
                field=v.field, reason=v.rule, description=v.description
            )
            for v in violations
        ]
        packed.append(_any(error_details_pb2.BadRequest(field_violations=fields)))
    status: bytes = status_pb2.Status(code=code.value[0], message="", details=packed).SerializeToString()
    return status


def refuse(code: grpc.StatusCode, reason: str, **fields: Any) -> Answer:
    """As Placet answers when it does not succeed."""

    async def answer(_: Any, context: Context) -> None:
        trailer = details(reason, code=code, **fields)
        await context.abort(code, reason.lower(), (("grpc-status-details-bin", trailer),))

    return answer


def break_off(code: grpc.StatusCode) -> Answer:
    """As a transport or a proxy answers."""

    async def answer(_: Any, context: Context) -> None:
        await context.abort(code, "upstream connect error")

    return answer


def succeed(output: str = '{"refund":"re_1"}', *, attached: bool = False) -> Answer:
    async def answer(_: Any, __: Context) -> runtime_service_pb2.ExecuteResponse:
        return runtime_service_pb2.ExecuteResponse(action=succeeded(output), attached=attached)

    return answer


def answer_with(response: Any) -> Answer:
    async def answer(_: Any, __: Context) -> Any:
        return response

    return answer


def found(action: action_pb2.Action) -> Answer:
    async def answer(_: Any, __: Context) -> runtime_service_pb2.GetActionResponse:
        return runtime_service_pb2.GetActionResponse(action=action)

    return answer


async def hang(_: Any, __: Context) -> None:
    await asyncio.Event().wait()


def succeeded(output: str = '{"refund":"re_1"}') -> action_pb2.Action:
    outcome = outcome_pb2.Outcome(kind=outcome_pb2.OUTCOME_KIND_SUCCEEDED, action_id=ACTION_ID)
    return action_pb2.Action(
        action_id=ACTION_ID, state=action_pb2.ACTION_STATE_SUCCEEDED, output_json=output, outcome=outcome
    )


def outcome(
    kind: str,
    reason: str,
    *,
    advice: str = "NEVER",
    effect: str = "NOT_DONE",
    action_id: str = ACTION_ID,
    retry_delay_seconds: float | None = None,
) -> outcome_pb2.Outcome:
    made = outcome_pb2.Outcome(
        kind=outcome_pb2.OutcomeKind.Value(f"OUTCOME_KIND_{kind}"),
        reason=error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}"),
        retry_advice=outcome_pb2.RetryAdvice.Value(f"RETRY_ADVICE_{advice}"),
        effect=outcome_pb2.EffectState.Value(f"EFFECT_STATE_{effect}"),
        action_id=action_id,
    )
    if retry_delay_seconds is not None:
        made.retry_delay.nanos = int(retry_delay_seconds * 1e9)
    return made


def event(sequence: int, **what: Any) -> event_pb2.ActionEvent:
    """Cursors count everything; `sequence` 0 is for chunks, progress and idle checkpoints."""
    name = next(iter(what), "")
    number = sequence or getattr(what.get(name), "number", 0)
    return event_pb2.ActionEvent(
        cursor=f"{'s' if sequence else 'n'}{number}",
        action_id=ACTION_ID,
        sequence=sequence,
        type=f"placet.action.{name}" if name else "",
        **what,
    )


def admitted() -> event_pb2.ActionEvent:
    return event(1, admitted=event_pb2.ActionAdmitted(capability="reports.export", version="1"))


def chunk(number: int, attempt: int = 1) -> event_pb2.ActionEvent:
    return event(0, chunk=event_pb2.OutputChunk(text=f"part {number}", number=number, attempt=attempt))


def settled(
    sequence: int = 2, ending: outcome_pb2.Outcome | None = None, output: str = '{"orders":3}'
) -> event_pb2.ActionEvent:
    ending = ending or succeeded().outcome
    if ending.kind != outcome_pb2.OUTCOME_KIND_SUCCEEDED:
        output = ""
    return event(sequence, settled=event_pb2.ActionSettled(outcome=ending, output_json=output))


class Script(RuntimeServiceServicer, OperationsServiceServicer, RecoveryServiceServicer):
    """Answers each method from its own list, in order, the last one for ever; remembers every request."""

    def __init__(self, **answers: Sequence[Any]) -> None:
        self.answers = {name: list(listed) for name, listed in answers.items()}
        self.requests: list[tuple[str, Any]] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def named(self, method: str) -> list[Any]:
        return [request for name, request in self.requests if name == method]

    async def Execute(self, request: Any, context: Context) -> Any:
        return await self._answer("Execute", request, context)

    async def Ask(self, request: Any, context: Context) -> Any:
        return await self._answer("Ask", request, context)

    async def ListTurns(self, request: Any, context: Context) -> Any:
        return await self._answer("ListTurns", request, context)

    async def Submit(self, request: Any, context: Context) -> Any:
        return await self._answer("Submit", request, context)

    async def ListServers(self, request: Any, context: Context) -> Any:
        return await self._answer("ListServers", request, context)

    async def ListDeliveries(self, request: Any, context: Context) -> Any:
        return await self._answer("ListDeliveries", request, context)

    async def GetDelivery(self, request: Any, context: Context) -> Any:
        return await self._answer("GetDelivery", request, context)

    async def RedeliverCallback(self, request: Any, context: Context) -> Any:
        return await self._answer("RedeliverCallback", request, context)

    async def ListQueues(self, request: Any, context: Context) -> Any:
        return await self._answer("ListQueues", request, context)

    async def ListDeadLetters(self, request: Any, context: Context) -> Any:
        return await self._answer("ListDeadLetters", request, context)

    async def Redrive(self, request: Any, context: Context) -> Any:
        return await self._answer("Redrive", request, context)

    async def SubmitBatch(self, request: Any, context: Context) -> Any:
        return await self._answer("SubmitBatch", request, context)

    async def PauseQueue(self, request: Any, context: Context) -> Any:
        return await self._answer("PauseQueue", request, context)

    async def ResumeQueue(self, request: Any, context: Context) -> Any:
        return await self._answer("ResumeQueue", request, context)

    async def ListAmbiguous(self, request: Any, context: Context) -> Any:
        return await self._answer("ListAmbiguous", request, context)

    async def Reconcile(self, request: Any, context: Context) -> Any:
        return await self._answer("Reconcile", request, context)

    async def Recover(self, request: Any, context: Context) -> Any:
        return await self._answer("Recover", request, context)

    async def GetReport(self, request: Any, context: Context) -> Any:
        return await self._answer("GetReport", request, context)

    async def ListReports(self, request: Any, context: Context) -> Any:
        return await self._answer("ListReports", request, context)

    async def ResolveAmbiguous(self, request: Any, context: Context) -> Any:
        return await self._answer("ResolveAmbiguous", request, context)

    async def GetAction(self, request: Any, context: Context) -> Any:
        return await self._answer("GetAction", request, context)

    async def WaitAction(self, request: Any, context: Context) -> Any:
        return await self._answer("WaitAction", request, context)

    async def ListActions(self, request: Any, context: Context) -> Any:
        return await self._answer("ListActions", request, context)

    async def CancelAction(self, request: Any, context: Context) -> Any:
        return await self._answer("CancelAction", request, context)

    async def CancelActions(self, request: Any, context: Context) -> Any:
        return await self._answer("CancelActions", request, context)

    async def GetCaller(self, request: Any, context: Context) -> Any:
        return await self._answer("GetCaller", request, context)

    async def GetServerInfo(self, request: Any, context: Context) -> Any:
        return await self._answer("GetServerInfo", request, context)

    async def ExecuteStream(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for sent in self._stream("ExecuteStream", request, context):
            yield runtime_service_pb2.ExecuteStreamResponse(event=sent)

    async def AskStream(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for sent in self._stream("AskStream", request, context):
            yield runtime_service_pb2.AskStreamResponse(event=sent)

    async def WatchAction(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for sent in self._stream("WatchAction", request, context):
            yield runtime_service_pb2.WatchActionResponse(event=sent)

    async def ResumeAction(self, request: Any, context: Context) -> Any:
        return await self._answer("ResumeAction", request, context)

    async def ResumeActionStream(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for sent in self._stream("ResumeActionStream", request, context):
            yield runtime_service_pb2.ResumeActionStreamResponse(event=sent)

    async def WatchEvents(self, request: Any, context: Context) -> AsyncIterator[Any]:
        async for sent in self._stream("WatchEvents", request, context):
            yield runtime_service_pb2.WatchEventsResponse(event=sent)

    async def _answer(self, method: str, request: Any, context: Context) -> Any:
        answer = self._next(method, request)
        try:
            return await answer(request, context)
        except asyncio.CancelledError:
            self.ended.set()
            raise

    async def _stream(
        self, method: str, request: Any, context: Context
    ) -> AsyncIterator[event_pb2.ActionEvent]:
        try:
            for item in self._next(method, request):
                if isinstance(item, event_pb2.ActionEvent):
                    yield item
                else:
                    await item(request, context)
        except (asyncio.CancelledError, GeneratorExit):
            self.ended.set()
            raise

    def _next(self, method: str, request: Any) -> Any:
        self.requests.append((method, request))
        self.began.set()
        answers = self.answers[method]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[str]:
    """The address of a server that follows the script."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_RuntimeServiceServicer_to_server(script, server)
    add_OperationsServiceServicer_to_server(script, server)
    add_RecoveryServiceServicer_to_server(script, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _any(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
