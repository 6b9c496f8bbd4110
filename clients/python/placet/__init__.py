"""The Python SDK of Placet.

An author takes `App`, `Context`, `SyncContext`, `Failure`; a caller takes `Client` or `AsyncClient` and the exceptions
of `placet.errors`; tests take `placet.testing`. The wire contract is `placet.v1`.
"""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from placet.app import App, Tool, load_app
    from placet.context import CallerInfo, Context, Json, SyncContext
    from placet.contract import Credentials
    from placet.failure import Cancelled, DeclarationError, Failure

# Imported on first use: whoever only calls needs no pydantic, whoever only declares needs no gRPC.
_HOMES = {
    "App": "app",
    "CallerInfo": "context",
    "Cancelled": "failure",
    "Context": "context",
    "Credentials": "contract",
    "DeclarationError": "failure",
    "Failure": "failure",
    "Json": "context",
    "SyncContext": "context",
    "Tool": "app",
    "load_app": "app",
}

__all__ = [
    "App",
    "CallerInfo",
    "Cancelled",
    "Context",
    "Credentials",
    "DeclarationError",
    "Failure",
    "Json",
    "SyncContext",
    "Tool",
    "load_app",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'placet' has no attribute {name!r}")
    return getattr(import_module(f"placet.{home}"), name)
