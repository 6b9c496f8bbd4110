"""What an answer may not be, and the figures of a run."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.rpc.support import Refusal
from tests.toolchain import ROOT

SECONDS_MAX = 10.0
# Of each kind and RPC; all are counted.
SHOWN_MAX = 5
SHOWN_BYTES_MAX = 4000
# No dice say these.
INNER = re.compile(
    "|".join(
        (
            r"Traceback|object at 0x|\.py\b|site-packages|asyncpg|\bline \d+, in ",
            r"[A-Z][a-z]+(Error|Exception)\b|relation \"|violates|syntax error at|duplicate key",
            r"\b(select|insert|update|delete)\b.{1,200}\b(from|into|set|where)\b|pg_\w+",
            *map(re.escape, {str(ROOT), sys.prefix, str(Path(sys.executable).parent)}),
        )
    )
)
# Said by gRPC or by the client's own clock, without an ErrorInfo.
METADATA_TOO_LARGE = "received metadata size exceeds"
CUT_OFF = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """To one call. `error` None: OK, or cut off in the middle of a stream."""

    said: bytes
    error: grpc.aio.AioRpcError | None
    seconds: float

    @property
    def status(self) -> str:
        return "OK" if self.error is None else str(self.error.code().name)

    @property
    def everything(self) -> bytes:
        if self.error is None:
            return self.said
        trailers = [*(self.error.initial_metadata() or ()), *(self.error.trailing_metadata() or ())]
        parts = [value if isinstance(value, bytes) else str(value).encode() for _, value in trailers]
        return b"\n".join((self.said, (self.error.details() or "").encode(), *parts))


def faults_of(answer: Answer, request: bytes, secrets: Sequence[bytes], *, may_be_cut_off: bool) -> list[str]:
    """What is wrong with it, most telling first."""
    found = []
    everything = answer.everything
    found += [f"tells another tenant's {secret.decode()}" for secret in secrets if secret in everything]
    if answer.seconds > SECONDS_MAX:
        found.append(f"took more than {SECONDS_MAX:.0f} s")
    if answer.error is None:
        return found
    refused = Refusal(answer.error)
    if not refused.infos and (
        refused.message.startswith(METADATA_TOO_LARGE) or (may_be_cut_off and refused.code in CUT_OFF)
    ):
        return found
    if refused.code is grpc.StatusCode.INTERNAL:
        found.append(f"INTERNAL: {refused.message}")
    if ["placet.dev"] != [info.domain for info in refused.infos]:
        found.append(f"no ErrorInfo of ours: {refused.code.name}: {refused.message}")
    inner = INNER.search(_words(refused))
    if inner and inner[0].encode() not in request:
        found.append(f"tells of its inside: {inner[0]}")
    return found


def _words(refused: Refusal) -> str:
    said: list[Any] = [refused.message]
    said += [value for info in refused.infos for value in info.metadata.values()]
    said += [each.description for bad in refused.bad_requests for each in bad.field_violations]
    said += [outcome.message for outcome in refused.outcomes if hasattr(outcome, "message")]
    return "\n".join(said)


@dataclass(kw_only=True)
class Tally:
    """Of one RPC."""

    calls: int = 0
    slowest: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    shown: list[dict[str, object]] = field(default_factory=list)

    def count(self, answer: Answer) -> None:
        self.calls += 1
        self.statuses[answer.status] += 1
        self.slowest = max(self.slowest, answer.seconds)

    def fault(self, number: int, what: str, request: bytes, metadata: object) -> None:
        kind = what.partition(":")[0]
        self.faults[kind] += 1
        if self.faults[kind] <= SHOWN_MAX:
            self.shown.append(
                {
                    "call": number,
                    "what": what,
                    "request": request[:SHOWN_BYTES_MAX].hex(),
                    "metadata": repr(metadata)[:SHOWN_BYTES_MAX],
                }
            )

    def as_json(self) -> dict[str, object]:
        return {
            "calls": self.calls,
            "slowest_seconds": round(self.slowest, 3),
            "statuses": dict(sorted(self.statuses.items())),
            "faults": dict(self.faults),
            "shown": self.shown,
        }
