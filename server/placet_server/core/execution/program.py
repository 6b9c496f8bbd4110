"""What runs without a handler of anybody's: agents. The core knows programs by these protocols alone; the composition
root says which there are.

A program is an async tool of ours that begins again from its start in every stretch of its run, reads what the run
remembers, and goes on from there. What it has of its attempt is in `stretch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from placet.app import Tool
from placet_server.model.capability import Capability
from placet_server.model.entry import Entry
from placet_server.model.run_errors import AgentUnavailable
from placet_server.model.usage import Counters
from placet_server.store.run import Remembered

EXTRA_MISSING = "extra_missing"
LACKS_MAX = 64


class RunEntries(Protocol):
    """What a run remembers, as one attempt of it reads and writes it. One call at a time."""

    async def read(self) -> Remembered:
        """First of all, and once. Empty before the run has opened."""

    async def append(
        self, entry: Entry, counters: Counters, *, seen: Sequence[str] = (), ahead: bool = False
    ) -> None:
        """Durable once it returns, however long the store is away, as the entry after what was read and appended; with
        what the run has spent by now. `seen`: children whose ends it tells; "" is none. `ahead`: durable once `written`
        returns; nothing that the run does then is before it, as its next entry waits, and its calls begin with it. Who
        asks a model waits for `written` himself.

        Raises LeaseLost: the attempt counts no longer."""

    async def begun(self) -> None:
        """What was appended ahead is on its way, unless others are before it; nobody waits long for that."""

    async def written(self) -> None:
        """What was appended ahead is durable. Raises LeaseLost."""

    async def spent_below(self, steps: Sequence[str]) -> dict[str, Counters]:
        """What runs that are steps of this one have spent, by step, over all tries of each; those that have not opened
        are not in it.
        """

    async def spent_before(self) -> Counters:
        """What earlier tries of the step that this run is have spent."""

    async def has_run(self, active_ms: int) -> None:
        """So long by now, with nothing else that is new: of a run that ends by that."""


class NamedModel(NamedTuple):
    """`problem`: why no run could ask it now, as AgentUnavailable names it; empty: nothing is missing here."""

    name: str
    problem: str


class Lack(NamedTuple):
    """Something that runs of an agent would lack now. `problem`: as AgentUnavailable names it, or "tool_unknown",
    "tool_unserved" and others of the contract; `name`: of the model, tool, pattern or delegate.
    """

    problem: str
    name: str = ""


class Programs(Protocol):
    """What can be run here, by what its contract says."""

    @property
    def are_here(self) -> bool:
        """Whether this process can run any."""

    def problem(self, capability: Capability) -> str:
        """Why no run of it can begin here, as AgentUnavailable names it; empty: one can. Must be quick."""

    def missing(self, capability: Capability, tenant: str) -> str:
        """As `problem`, with what this tenant's runs of it would lack besides. May read a small file."""

    async def lacks(self, capability: Capability, tenant: str) -> Sequence[Lack]:
        """All that this tenant's runs of it would lack, LACKS_MAX at most. Raises StoreUnavailable."""

    async def check(self, capability: Capability, tenant: str, value: Any) -> None:
        """Whether a run with this input could open. Raises AgentUnavailable, PayloadTooLarge, InputSchemaViolation,
        StoreUnavailable.
        """

    def tool(self, capability: Capability) -> Tool | None:
        """What runs it here: async, with a context. None while there is a problem. Must be quick."""

    def words_bytes_max(self, capability: Capability) -> int:
        """Of more words, in bytes, nobody could make anything that it is asked; 0: nobody knows. Must be quick."""

    async def models(self) -> Sequence[NamedModel]:
        """All that runs may ask here, by name."""

    def problems_of_files(self) -> Sequence[str]:
        """What is wrong with the operator's files as they are now; what they said before is in force."""


class NoPrograms:
    """This process runs none."""

    are_here = False

    def problem(self, capability: Capability) -> str:
        return EXTRA_MISSING

    def missing(self, capability: Capability, tenant: str) -> str:
        return EXTRA_MISSING

    async def lacks(self, capability: Capability, tenant: str) -> Sequence[Lack]:
        return (Lack(EXTRA_MISSING),)

    async def check(self, capability: Capability, tenant: str, value: Any) -> None:
        raise AgentUnavailable(agent=capability.name, problem=EXTRA_MISSING)

    def tool(self, capability: Capability) -> Tool | None:
        return None

    def words_bytes_max(self, capability: Capability) -> int:
        return 0

    async def models(self) -> Sequence[NamedModel]:
        return ()

    def problems_of_files(self) -> Sequence[str]:
        return ()


@runtime_checkable
class Asks(Protocol):
    """A holding of a run that is not needed while it only waits for an answer from elsewhere."""

    def ask(self) -> None: ...

    def asked(self) -> None:
        """Taken back; the run may have ended meanwhile."""
