"""What a command cannot do, said to the person at the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from placet_server.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from placet_server.model.errors import StoreUnavailable

INSTALL_COMMAND = "pip install 'placet[server,embedded]'; in a clone pip install '.[server,embedded]'"
INSTALL_AGENTS_COMMAND = (
    "pip install 'placet[server,embedded,agents]'; in a clone pip install '.[server,embedded,agents]'"
)

OWN_PACKAGES = frozenset({"placet", "placet_server", "buf"})
# One of each layer is enough to tell that the extra is not installed, without importing it.
AGENT_PACKAGES = ("pydantic_ai",)
SERVER_PACKAGES = ("asyncpg", "grpc_reflection", "jsonschema_rs", "protovalidate", "pydantic_settings")


class Complaint(Exception):
    """Ends the command with this text on stderr and this exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.kind = kind or code.name


@contextmanager
def server_extras() -> Iterator[None]:
    """Around imports of the server: what the base install lacks becomes the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OWN_PACKAGES:
            raise
        raise _extras_missing(missing) from None


def store_away(error: StoreUnavailable) -> Complaint:
    """For who starts a server or changes its schema, and may know why; callers are told that they may ask again."""
    text = f"the store does not answer: {error.detail}".rstrip(": ")
    return Complaint(text, ExitCode.UNAVAILABLE, error.reason)


def require_server_extras() -> None:
    """For a command that leaves the server to another process. Raises Complaint."""
    for package in SERVER_PACKAGES:
        if find_spec(package) is None:
            raise _extras_missing(package)


def require_agent_extras() -> None:
    """For a command that has another process run an agent. Raises Complaint."""
    require_server_extras()
    for package in AGENT_PACKAGES:
        if find_spec(package) is None:
            raise _extras_missing(package, "runs an agent", INSTALL_AGENTS_COMMAND)


def _extras_missing(
    package: str, need: str = "needs the server", command: str = INSTALL_COMMAND
) -> Complaint:
    return Complaint(
        f"this command {need}, and {package!r} is not installed: {command}",
        ExitCode.UNAVAILABLE,
        "EXTRAS_MISSING",
    )
