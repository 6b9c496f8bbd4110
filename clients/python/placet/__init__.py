"""The Python SDK of Placet.

An author takes `App`, `Context`, `SyncContext`, `Failure`; a caller takes `Client` or `AsyncClient` and the exceptions
of `placet.errors`; tests take `placet.testing`. The wire contract is `placet.v1`.
"""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from placet.agent import (
        Agent,
        Budget,
        DelegateChoice,
        InlineAgent,
        Memory,
        ModelSettings,
        ProviderRetry,
        ToolChoice,
    )
    from placet.aio import AsyncClient
    from placet.app import App, Tool, load_app
    from placet.approval_requests import Decision
    from placet.ask_requests import BinaryPart, JsonPart, Reply
    from placet.batch import Submission
    from placet.catalog_requests import Connector
    from placet.client import Client
    from placet.connection import Tls
    from placet.context import CallerInfo, Context, DelegateInfo, Json, SyncContext
    from placet.contract import Credentials
    from placet.errors import PlacetError
    from placet.failure import CallFailed, CallOutcome, Cancelled, DeclarationError, Failure
    from placet.lookup import Committed, LookupContext, NotCommitted, NotKnown
    from placet.policy import Overlay, PolicySet
    from placet.result import CancelCount, Result, Submitted
    from placet.run_event import (
        Ended,
        ReasoningDelta,
        Restarted,
        Resumed,
        RunEvent,
        TextDelta,
        ToolFinished,
        ToolStarted,
        TurnAnswered,
        TurnFailed,
        TurnStarted,
        Waiting,
    )
    from placet.run_stream import AsyncRunStream, RunStream

# Imported on first use: whoever only calls needs no pydantic, whoever only declares needs no gRPC.
_HOMES = {
    "Agent": "agent",
    "App": "app",
    "AsyncClient": "aio",
    "AsyncRunStream": "run_stream",
    "BinaryPart": "ask_requests",
    "Budget": "agent",
    "CallFailed": "failure",
    "CallOutcome": "failure",
    "CallerInfo": "context",
    "CancelCount": "result",
    "Cancelled": "failure",
    "Client": "client",
    "Committed": "lookup",
    "Connector": "catalog_requests",
    "Context": "context",
    "Credentials": "contract",
    "Decision": "approval_requests",
    "DeclarationError": "failure",
    "DelegateChoice": "agent",
    "DelegateInfo": "context",
    "Ended": "run_event",
    "Failure": "failure",
    "InlineAgent": "agent",
    "Json": "context",
    "JsonPart": "ask_requests",
    "LookupContext": "lookup",
    "Memory": "agent",
    "ModelSettings": "agent",
    "NotCommitted": "lookup",
    "NotKnown": "lookup",
    "Overlay": "policy",
    "PlacetError": "errors",
    "PolicySet": "policy",
    "ProviderRetry": "agent",
    "ReasoningDelta": "run_event",
    "Reply": "ask_requests",
    "Restarted": "run_event",
    "Result": "result",
    "Resumed": "run_event",
    "RunEvent": "run_event",
    "RunStream": "run_stream",
    "Submission": "batch",
    "Submitted": "result",
    "SyncContext": "context",
    "TextDelta": "run_event",
    "Tls": "connection",
    "Tool": "app",
    "ToolChoice": "agent",
    "ToolFinished": "run_event",
    "ToolStarted": "run_event",
    "TurnAnswered": "run_event",
    "TurnFailed": "run_event",
    "TurnStarted": "run_event",
    "Waiting": "run_event",
    "load_app": "app",
}

__all__ = [
    "Agent",
    "App",
    "AsyncClient",
    "AsyncRunStream",
    "BinaryPart",
    "Budget",
    "CallFailed",
    "CallOutcome",
    "CallerInfo",
    "CancelCount",
    "Cancelled",
    "Client",
    "Committed",
    "Connector",
    "Context",
    "Credentials",
    "Decision",
    "DeclarationError",
    "DelegateChoice",
    "DelegateInfo",
    "Ended",
    "Failure",
    "InlineAgent",
    "Json",
    "JsonPart",
    "LookupContext",
    "Memory",
    "ModelSettings",
    "NotCommitted",
    "NotKnown",
    "Overlay",
    "PlacetError",
    "PolicySet",
    "ProviderRetry",
    "ReasoningDelta",
    "Reply",
    "Restarted",
    "Result",
    "Resumed",
    "RunEvent",
    "RunStream",
    "Submission",
    "Submitted",
    "SyncContext",
    "TextDelta",
    "Tls",
    "Tool",
    "ToolChoice",
    "ToolFinished",
    "ToolStarted",
    "TurnAnswered",
    "TurnFailed",
    "TurnStarted",
    "Waiting",
    "load_app",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'placet' has no attribute {name!r}")
    return getattr(import_module(f"placet.{home}"), name)
