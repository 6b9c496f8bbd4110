"""A Python client that does as it is told (see program.py): blocking stubs over a channel with default options."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2

from placet.v1 import (
    approval_service_pb2,
    catalog_service_pb2,
    operations_service_pb2,
    outcome_pb2,
    policy_service_pb2,
    recovery_service_pb2,
    runtime_service_pb2,
    session_service_pb2,
)
from placet.v1.approval_service_pb2_grpc import ApprovalServiceStub
from placet.v1.catalog_service_pb2_grpc import CatalogServiceStub
from placet.v1.operations_service_pb2_grpc import OperationsServiceStub
from placet.v1.policy_service_pb2_grpc import PolicyServiceStub
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet.v1.session_service_pb2_grpc import SessionServiceStub

SERVICES = {
    RuntimeServiceStub: runtime_service_pb2.DESCRIPTOR.services_by_name["RuntimeService"],
    CatalogServiceStub: catalog_service_pb2.DESCRIPTOR.services_by_name["CatalogService"],
    OperationsServiceStub: operations_service_pb2.DESCRIPTOR.services_by_name["OperationsService"],
    PolicyServiceStub: policy_service_pb2.DESCRIPTOR.services_by_name["PolicyService"],
    ApprovalServiceStub: approval_service_pb2.DESCRIPTOR.services_by_name["ApprovalService"],
    SessionServiceStub: session_service_pb2.DESCRIPTOR.services_by_name["SessionService"],
    RecoveryServiceStub: recovery_service_pb2.DESCRIPTOR.services_by_name["RecoveryService"],
}
DETAILS = {
    message.DESCRIPTOR.full_name: message
    for message in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
        outcome_pb2.Outcome,
    )
}


class Desk:
    """Makes each call in a thread of its own."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._methods: dict[str, tuple[Any, Any]] = {}
        for stub_type, service in SERVICES.items():
            stub = stub_type(channel)
            for method in service.methods:
                self._methods[method.name] = getattr(stub, method.name), method
        self._running: dict[int, Any] = {}
        self._lock = threading.Lock()

    def take(self, order: dict[str, Any]) -> None:
        if "cancel" in order:
            self._running[order["cancel"]].cancel()
            return
        # Begun here, so that a cancel that follows finds it.
        begun = self._begin(order)
        threading.Thread(target=self._run, args=(order, begun), daemon=True).start()

    def _run(self, order: dict[str, Any], begun: tuple[Any, bool]) -> None:
        answers = [_answer(*begun)]
        answers += [_answer(*self._begin(order)) for _ in range(order["times"] - 1)]
        line = json.dumps({"call": order["call"], "answers": answers})
        with self._lock:
            print(line, flush=True)

    def _begin(self, order: dict[str, Any]) -> tuple[Any, bool]:
        """The call, and whether it streams."""
        how = {"metadata": tuple(order["metadata"].items()), "timeout": order["seconds"] or None}
        streams = False
        if "path" in order:
            raw: Any = self._channel.unary_unary(order["path"])
            call = raw.future(base64.b64decode(order["raw"]), **how)
        else:
            stub, method = self._methods[order["rpc"]]
            request = json_format.ParseDict(order["request"], GetMessageClass(method.input_type)())
            streams = method.server_streaming
            call = stub(request, **how) if streams else stub.future(request, **how)
        self._running[order["call"]] = call
        return call, streams


def _answer(call: Any, streams: bool) -> dict[str, Any]:
    responses = []
    try:
        for response in call if streams else [call.result()]:
            responses.append(response)
    except (grpc.RpcError, grpc.FutureCancelledError):
        # The status, read below, says it.
        pass
    code = call.code()
    trailers = dict(call.trailing_metadata() or ())
    details = _details(trailers.get("grpc-status-details-bin", b""))
    return {
        "code": code_pb2.Code.Name(code.value[0]),
        "message": "" if code is grpc.StatusCode.OK else call.details(),
        "details": len(details),
        "infos": [
            {"domain": d.domain, "reason": d.reason, "metadata": dict(d.metadata)}
            for d in _of(details, error_details_pb2.ErrorInfo)
        ],
        "outcomes": [json_format.MessageToDict(d) for d in _of(details, outcome_pb2.Outcome)],
        "retry_seconds": [
            d.retry_delay.seconds + d.retry_delay.nanos / 1e9
            for d in _of(details, error_details_pb2.RetryInfo)
        ],
        "violations": [
            [v.field, v.description, v.reason]
            for d in _of(details, error_details_pb2.BadRequest)
            for v in d.field_violations
        ],
        "quota": [
            [v.subject, v.description]
            for d in _of(details, error_details_pb2.QuotaFailure)
            for v in d.violations
        ],
        "headers": _ours(call.initial_metadata() or ()),
        "trailers": _ours(trailers.items()),
        "responses": [json_format.MessageToDict(r) for r in responses if not isinstance(r, bytes)],
    }


def _details(raw: bytes) -> list[Any]:
    try:
        status = status_pb2.Status.FromString(raw)
    except DecodeError:
        return []
    named = [(each.type_url.rsplit("/", 1)[-1], each.value) for each in status.details]
    return [DETAILS[name].FromString(value) if name in DETAILS else None for name, value in named]


def _of(details: Iterable[Any], kind: Callable[..., Any]) -> list[Any]:
    return [each for each in details if type(each) is kind]


def _ours(pairs: Iterable[tuple[str, Any]]) -> dict[str, str]:
    return {
        name: value for name, value in pairs if name.startswith("placet-") or name == "grpc-retry-pushback-ms"
    }


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        desk = Desk(channel)
        for line in sys.stdin:
            desk.take(json.loads(line))


if __name__ == "__main__":
    main()
