"""Policy sets as they come and go: checked whole, admitted one after the other, and gone back to.

Two who admit at once: the second finds that the newest revision is not the one that it has looked at, and looks again;
with an expected digest it hears that what it wanted to replace is not there any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from placet_server.core.admission.policy_check import check_policy_set
from placet_server.core.admission.policy_lock_out import lock_out
from placet_server.core.decision.policy import Policies
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.errors import FieldViolation, NotFound, StaleDigest, StoreUnavailable
from placet_server.model.manifest import Problem
from placet_server.model.policy import OPERATOR_TENANT, PolicySet
from placet_server.model.policy_default import DEFAULT_POLICY_COUNT, DEFAULT_SET
from placet_server.model.policy_errors import PolicySetRefused
from placet_server.model.policy_text import parse_policies
from placet_server.store import catalog
from placet_server.store import policy as rows
from placet_server.store.clock import Clock
from placet_server.store.connection import Connection
from placet_server.store.policy import PolicySetRow, StoredPolicySet
from placet_server.store.pool import Pool

# The capability that puts sets in force.
ADMIT_POLICY_SET = "placet.policy.admit"
TRIES_MAX = 8
CAPABILITIES_MAX = 10_000
# So many are read between two turns of others.
_CAPABILITIES_AT_A_TIME = 50

BUILT_IN = StoredPolicySet(
    tenant="",
    revision=0,
    digest=DEFAULT_SET.digest,
    document=DEFAULT_SET,
    policy_count=DEFAULT_POLICY_COUNT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedSet:
    """`changed`: False if the set was in force already, or only looked at. Problems are there only then."""

    revision: int
    digest: str
    problems: tuple[Problem, ...] = ()
    changed: bool = False


Note = Callable[[Connection, AdmittedSet], Awaitable[None]]


class PolicySets:
    """One per process; belongs to its event loop. `tenant` is whose set is meant: '-' the operator's."""

    def __init__(
        self, pool: Pool, policies: Policies, clock: Clock, *, built_in: Sequence[Capability] = ()
    ) -> None:
        """`built_in`: what policies can be about besides what is admitted."""
        self._pool = pool
        self._built_in = built_in
        self._policies = policies
        self._clock = clock
        # Checking takes a whole thread: of those who ask at once one goes after the other.
        self._checking = asyncio.Semaphore(1)

    def now(self) -> datetime | None:
        """As statements are given it."""
        return self._clock.now()

    async def validate(
        self, tenant: str, document: PolicySet, author: Caller | None = None
    ) -> tuple[Problem, ...]:
        """Every problem, as far as one hides no other. `author`: who puts it in force and must be able to put another
        one in its place. Raises StoreUnavailable.
        """
        capabilities = await self._capabilities(tenant)
        async with self._checking:
            problems = tuple(await asyncio.to_thread(check_policy_set, document, capabilities))
        admit = next((c for c in self._built_in if c.name == ADMIT_POLICY_SET), None)
        if problems or author is None or admit is None:
            return problems
        locked = await lock_out(self._policies, tenant, document, author, admit)
        return () if locked is None else (locked,)

    async def admit(
        self,
        caller: Caller,
        tenant: str,
        document: PolicySet,
        *,
        validate_only: bool = False,
        expected_digest: str = "",
    ) -> AdmittedSet:
        """In force from the moment this returns, here; elsewhere a second later.

        Raises PolicySetRefused (never when `validate_only`, which changes nothing), StaleDigest, StoreUnavailable.
        """
        if not validate_only:
            await self.check(tenant, document)
            return await self.put(caller, tenant, document, expected_digest=expected_digest)
        problems = await self.validate(tenant, document, caller)
        newest = await self.newest(tenant, document, expected_digest)
        return AdmittedSet(revision=newest.revision, digest=document.digest, problems=problems)

    async def check(self, tenant: str, document: PolicySet, author: Caller | None = None) -> None:
        """Raises PolicySetRefused with every problem, StoreUnavailable."""
        problems = await self.validate(tenant, document, author)
        if problems:
            raise _refusal(document, problems)

    async def newest(self, tenant: str, document: PolicySet, expected_digest: str) -> StoredPolicySet:
        """What a set would replace. Raises StaleDigest unless that is as expected, or the set itself."""
        async with self._pool.connection() as connection:
            newest = await _newest(connection, tenant)
        _check_expected(expected_digest, newest, document)
        return newest

    async def roll_back(
        self, caller: Caller, tenant: str, revision: int, *, expected_digest: str = ""
    ) -> AdmittedSet:
        """The document of an older revision, as a new one. It has been checked when it was admitted.

        Raises NotFound, StaleDigest, StoreUnavailable.
        """
        older = await self.get(tenant, revision)
        return await self.put(
            caller, tenant, older.document, restores=revision, expected_digest=expected_digest
        )

    async def get(self, tenant: str, revision: int | None = None) -> StoredPolicySet:
        """None: what is in force. Raises NotFound, StoreUnavailable."""
        if revision == 0 and tenant != OPERATOR_TENANT:
            return BUILT_IN
        async with self._pool.connection() as connection:
            stored = await rows.get_set(connection, tenant, revision)
        if stored is not None:
            return stored
        if revision is None and tenant != OPERATOR_TENANT:
            return BUILT_IN
        raise NotFound(kind="policy set", name="" if revision is None else str(revision))

    async def list_revisions(self, tenant: str, *, page_size: int, before: int) -> list[PolicySetRow]:
        """Newest first; fewer than `page_size` on the last page."""
        async with self._pool.connection() as connection:
            return await rows.list_sets(connection, tenant, before=before, page_size=page_size)

    async def put(
        self,
        caller: Caller,
        tenant: str,
        document: PolicySet,
        *,
        restores: int | None = None,
        expected_digest: str = "",
        note: Note | None = None,
    ) -> AdmittedSet:
        """Of a set that was checked. `note`: what is stored in the tx that puts it in force. Raises as `admit` does."""
        count = await asyncio.to_thread(_count, document)
        for _ in range(TRIES_MAX):
            async with self._pool.tx(timeout_seconds=10.0) as connection:
                newest = await _newest(connection, tenant)
                _check_expected(expected_digest, newest, document)
                if newest.digest == document.digest and newest.revision:
                    return AdmittedSet(revision=newest.revision, digest=newest.digest)
                revision = await rows.put_set(
                    connection,
                    tenant,
                    document,
                    after=newest.revision,
                    policy_count=count,
                    admitted_by=caller.subject,
                    restores=restores,
                    now=self._clock.now(),
                )
                admitted = AdmittedSet(revision=revision or 0, digest=document.digest, changed=True)
                if revision is not None and note is not None:
                    await note(connection, admitted)
            if revision is not None:
                self._policies.forget(tenant)
                return admitted
        raise StoreUnavailable(detail="others admit policy sets all the time")

    async def _capabilities(self, tenant: str) -> list[Capability]:
        """All that policies of a tenant could be about; the operator's: of every tenant."""
        found: list[Capability] = list(self._built_in)
        after = ("", "", "")
        while len(found) < CAPABILITIES_MAX:
            async with self._pool.connection() as connection:
                page = await catalog.list_for_policies(
                    connection, tenant, after=after, count_max=_CAPABILITIES_AT_A_TIME
                )
            found += (stored.capability for stored in page)
            if len(page) < _CAPABILITIES_AT_A_TIME:
                break
            last = page[-1]
            after = (last.tenant, last.capability.name, last.capability.version)
        return found


async def _newest(connection: Connection, tenant: str) -> StoredPolicySet:
    """A tenant without one has the built-in one; the operator none, which counts alike here."""
    return await rows.get_set(connection, tenant) or BUILT_IN


def _check_expected(expected_digest: str, newest: StoredPolicySet, document: PolicySet) -> None:
    """What is in force already replaces nothing: whoever has not heard the answer may ask again."""
    is_there = bool(newest.revision) and newest.digest == document.digest
    if expected_digest and expected_digest != newest.digest and not is_there:
        raise StaleDigest(expected=expected_digest, actual=newest.digest)


def _count(document: PolicySet) -> int:
    return len(parse_policies(document.cedar).policies)


def _refusal(document: PolicySet, problems: tuple[Problem, ...]) -> PolicySetRefused:
    return PolicySetRefused(
        name=document.name[:64],
        violations=tuple(
            FieldViolation(field=f"policy_set.{p.path}", rule=p.code, description=p.message) for p in problems
        ),
    )
