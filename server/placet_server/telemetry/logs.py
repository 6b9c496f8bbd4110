"""Log lines, for people or as JSON, each with the ids of its call. Never a payload, never a token."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol

_FIELDS = ("incident_id", "action_id", "trace_id")


class Ids(Protocol):
    """What the current call is known by, as far as it is known."""

    @property
    def action_id(self) -> str: ...

    @property
    def trace_id(self) -> str: ...


current: ContextVar[Ids | None] = ContextVar("placet_call", default=None)


def set_up(*, json_lines: bool, level: str) -> None:
    """Replaces the handlers of the root logger. Lines go to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine() if json_lines else TextLine())
    handler.addFilter(_add_ids)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It would write a bearer token that is not ASCII into the log.
    logging.getLogger("grpc._cython.cygrpc").addFilter(
        lambda record: "Invalid encoding" not in str(record.msg)
    )
    for chatty in ("httpx", "httpcore", "httpx2", "httpcore2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _add_ids(record: logging.LogRecord) -> bool:
    call = current.get()
    if call is not None:
        for name in ("action_id", "trace_id"):
            if not getattr(record, name, ""):
                setattr(record, name, getattr(call, name))
    return True


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in _FIELDS if (value := getattr(record, name, ""))}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        # One event is one line, whatever its text holds; only a traceback goes on below.
        message = record.getMessage().replace("\n", "\\n")
        ids = "".join(f" {name}={value}" for name in _FIELDS if (value := getattr(record, name, "")))
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{time} {record.levelname:<7} {record.name}: {message}{ids}{trace}"
