"""What the store keeps, and through what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class DurabilityClass(IntEnum):
    """What survives what; a higher one keeps more. Numbered as in the contract."""

    EPHEMERAL = 1
    DURABLE_SINGLE_PROCESS = 2
    DURABLE_SHARED = 3

    def keeps(self, required: DurabilityClass) -> bool:
        """Whether this class is enough for whoever requires the other."""
        return self >= required


class Replication(StrEnum):
    """Whether a commit waits for another Postgres."""

    NONE = "none"
    ASYNC = "async"
    SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """A class with the settings it was verified by, as the store's own sessions see them."""

    class_: DurabilityClass
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    replication: Replication
