"""What policies say about a call: on the hot path without the store, and never without knowing what is in force.

What was read of a tenant's policies is thrown away whole when a revision has moved, its own or the operator's. The
revisions are read again after `refresh_seconds`, so that another replica's admission is seen within that time, and this
one's at once. If they cannot be read, nothing is allowed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from time import monotonic

from placet_server.core.decision.policy_rules import CompiledSet, NotCompiled, Rulebook
from placet_server.core.decision.policy_slice import Question
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.errors import StoreUnavailable
from placet_server.model.policy import OPERATOR_TENANT, PolicySet, PolicyVerdict
from placet_server.model.policy_default import DEFAULT_SET
from placet_server.store import policy as rows
from placet_server.store.clock import Clock
from placet_server.store.pool import Pool

_TENANTS_MAX = 1024
_STORED_MAX = 65536
# So long a verdict is believed to be stored without its use being noted; retention waits for many times as long.
BELIEVED_SECONDS = 3600.0

_log = logging.getLogger(__name__)


class Policies:
    """One per process; belongs to its event loop."""

    def __init__(self, pool: Pool, clock: Clock, *, refresh_seconds: float = 1.0) -> None:
        self._pool = pool
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._books: OrderedDict[str, Rulebook] = OrderedDict()
        self._refreshing: dict[str, asyncio.Lock] = {}
        self._operator: CompiledSet | None = None
        self._built_in: CompiledSet | None = None
        # Until when verdicts are stored for sure, by tenant and digest.
        self._stored: dict[tuple[str, str], float] = {}

    def known(self, capability: Capability, caller: Caller) -> PolicyVerdict | None:
        """The verdict, where it depends on nothing but these, and the policies are as fresh as need be."""
        book = self._books.get(caller.tenant)
        if book is None or monotonic() >= book.fresh_until:
            return None
        return book.known(capability, caller)

    async def decide(self, question: Question) -> PolicyVerdict:
        """The verdict; one that allows is stored once this returns. Raises StoreUnavailable."""
        book = await self.book(question.caller.tenant)
        decided = await book.decide(question)
        if decided.verdict.allowed:
            await self._store(question.caller.tenant, decided.verdict)
        book.remember(question, decided)
        return decided.verdict

    async def book(self, tenant: str) -> Rulebook:
        """What is in force. Raises StoreUnavailable."""
        book = self._books.get(tenant)
        if book is not None and monotonic() < book.fresh_until:
            return book
        async with self._refreshing.setdefault(tenant, asyncio.Lock()):
            return await self._refreshed(tenant)

    async def book_with(self, tenant: str, document: PolicySet, *, owner: str = "") -> Rulebook:
        """As if this set were in force for the tenant in place of its own, or by `owner` of the operator's.

        Raises NotCompiled, StoreUnavailable.
        """
        book = await self.book(tenant)
        compiled = await asyncio.to_thread(CompiledSet, owner or tenant, -1, document)
        if owner == OPERATOR_TENANT:
            return Rulebook(compiled, book.own)
        return Rulebook(book.operator, compiled)

    def forget(self, tenant: str) -> None:
        """Its set has changed; the operator's is everybody's."""
        if tenant == OPERATOR_TENANT:
            self._books.clear()
        else:
            self._books.pop(tenant, None)

    async def _refreshed(self, tenant: str) -> Rulebook:
        book, started = self._books.get(tenant), monotonic()
        if book is not None and started < book.fresh_until:
            return book
        async with self._pool.connection() as connection:
            revisions = await rows.get_revisions(connection, tenant)
        if book is None or book.revisions != revisions:
            try:
                operator = await self._operators(revisions.operator)
                own = await self._compiled(tenant, revisions.own) if revisions.own else await self._default()
            except NotCompiled as error:
                _log.error("the policies of tenant %s cannot be read: %s", tenant, error)
                raise StoreUnavailable(detail=str(error)) from error
            book = self._books[tenant] = Rulebook(operator, own)
        if started >= book.remembers_until:
            # Whatever is decided often is stored again, so that nobody takes it for unused.
            book.forget()
            book.remembers_until = started + BELIEVED_SECONDS
        book.fresh_until = started + self._refresh_seconds
        self._books.move_to_end(tenant)
        while len(self._books) > _TENANTS_MAX:
            forgotten, _ = self._books.popitem(last=False)
            self._refreshing.pop(forgotten, None)
        return book

    async def _operators(self, revision: int) -> CompiledSet | None:
        if revision == 0:
            return None
        if self._operator is None or self._operator.revision != revision:
            self._operator = await self._compiled(OPERATOR_TENANT, revision)
        return self._operator

    async def _compiled(self, tenant: str, revision: int) -> CompiledSet:
        async with self._pool.connection() as connection:
            stored = await rows.get_set(connection, tenant, revision)
        if stored is None:
            raise StoreUnavailable(detail=f"policy set {revision} of tenant {tenant} is gone")
        return await asyncio.to_thread(CompiledSet, tenant, revision, stored.document)

    async def _default(self) -> CompiledSet:
        if self._built_in is None:
            self._built_in = await asyncio.to_thread(CompiledSet, "", 0, DEFAULT_SET)
        return self._built_in

    async def _store(self, tenant: str, verdict: PolicyVerdict) -> None:
        key, now = (tenant, verdict.digest), monotonic()
        if now < self._stored.get(key, 0.0):
            return
        async with self._pool.connection() as connection:
            await rows.put_verdict(connection, tenant, verdict, self._clock.now())
        if len(self._stored) >= _STORED_MAX:
            self._stored.clear()
        self._stored[key] = now + BELIEVED_SECONDS
