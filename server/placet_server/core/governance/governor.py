"""What is asked of the server itself: completed before the policies see it, and done by handlers of its own.

The caller says what he wants; what that would mean (does it weaken a contract, what does it replace) the server finds
out and adds to the input. So policies decide on it, people see it, and the approval is bound to it, as to any input.
What it replaces is part of it, too: if that has changed when it runs, it fails.

A request without a key gets one, of what it asks for and of what it would replace: sent again, it meets its action. If
that has ended and nothing was done, it is asked for anew, but for what people have said no to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from placet.context import Context
from placet_server.core.admission.builtin import Prepared
from placet_server.core.admission.key import bind_key
from placet_server.core.admission.pipeline import Call
from placet_server.core.admission.reserve import find_by_key
from placet_server.core.execution.attempt import LeaseLost, attempt_of
from placet_server.core.governance.failure import Errors
from placet_server.core.governance.use import Members, Use
from placet_server.model.action import Action
from placet_server.model.caller import EVERY_SCOPE
from placet_server.model.capability import Capability
from placet_server.model.decision_errors import ApprovalExpired
from placet_server.model.errors import FieldViolation, MalformedRequest, PlacetError, ScopeMissing
from placet_server.model.gate_errors import ContractViolation
from placet_server.model.json_text import CanonicalJson, canonicalize, canonicalize_value
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import governed

if TYPE_CHECKING:
    from placet.standing import AsyncStanding
    from placet_server.core.kernel import Kernel

# So often the same request gets an action of its own.
ASKED_ANEW_MAX = 64


class Governor:
    """One per process; belongs to its event loop. `kernel` and `uses` are set once there is a kernel."""

    kernel: Kernel

    def __init__(self) -> None:
        self.errors = Errors()
        self._uses: Mapping[str, Use] = {}
        self.governed: frozenset[str] = frozenset()

    def attach(self, kernel: Kernel, uses: Mapping[str, Use]) -> None:
        kernel.governor = self
        self.kernel = kernel
        self._uses = uses
        self.governed = frozenset(uses)

    async def prepare(
        self, call: Call, capability: Capability, given: CanonicalJson, parent: str
    ) -> Prepared:
        """See `builtin.Governor`."""
        use = self._uses[capability.name]
        if parent:
            raise ContractViolation(
                capability=capability.name,
                rule="governed_by_handler",
                detail="no handler governs the server that runs it; its caller may ask for it.",
            )
        if use.scope not in call.caller.scopes and EVERY_SCOPE not in call.caller.scopes:
            raise ScopeMissing(scope=use.scope)
        _check_asked(use, given.value)
        met = await self._met(call, capability, given)
        return met or await self._completed(call, capability, use, given)

    async def handle(self, context: Context, members: Members) -> Any:
        """What every handler does."""
        standing: AsyncStanding = context  # type: ignore[assignment]
        attempt = attempt_of(standing)
        action, caller = attempt.action, attempt.run.work.caller
        try:
            async with self.kernel.journal.pool.connection() as connection:
                done = await governed.get(connection, action.requester.tenant, action.action_id)
            if done is not None:
                return orjson.loads(done)
            return await self._uses[action.capability].run(caller, action, members)
        except PlacetError as error:
            raise self.errors.failure_of(action.action_id, error) from error

    async def _met(self, call: Call, capability: Capability, given: CanonicalJson) -> Prepared | None:
        """The same request under the same key has been completed before: things have moved since, by it for one."""
        text = call.invocation.idempotency_key
        key = bind_key(capability, call.caller, text)
        known = None if key is None else await find_by_key(self.kernel.journal, key.digest)
        if known is None or known.input_json is None:
            return None
        completed = canonicalize(known.input_json, bytes_max=_bytes_max(capability))
        asked = self._uses[capability.name].asked
        same = {name: member for name, member in completed.value.items() if name in asked} == given.value
        return Prepared(completed, text) if same else None

    async def _completed(
        self, call: Call, capability: Capability, use: Use, given: CanonicalJson
    ) -> Prepared:
        proposal = await use.propose(call.caller, given.value)
        completed = canonicalize_value(given.value | proposal.found, bytes_max=_bytes_max(capability))
        text = call.invocation.idempotency_key
        if not text:
            text = await self._own_key(call, capability, f"{completed.digest.hex()} {proposal.basis}")
        return Prepared(completed, text)

    async def _own_key(self, call: Call, capability: Capability, basis: str) -> str:
        text = ""
        for _ in range(ASKED_ANEW_MAX):
            text = f"request-{hashlib.sha256(basis.encode()).hexdigest()}"
            key = bind_key(capability, call.caller, text)
            known = None if key is None else await find_by_key(self.kernel.journal, key.digest)
            if known is None or not _may_be_asked_anew(known):
                break
            basis = f"{basis} {known.action_id}"
        return text


async def hold(connection: Any, action: Action) -> None:
    """In the tx of a change, after it: an attempt that was given up meanwhile changes nothing. Raises LeaseLost."""
    if not await governed.hold(connection, action.requester.tenant, action.action_id, action.lease_id):
        raise LeaseLost


async def note(connection: Any, action: Action, output: Members) -> None:
    """In the tx of a change, after it: that the action has made it. Raises LeaseLost."""
    await hold(connection, action)
    text = orjson.dumps(output).decode()
    await governed.put(connection, action.requester.tenant, action.action_id, text)


def _may_be_asked_anew(action: Action) -> bool:
    """It has ended, nothing was done, and nobody has said no to it."""
    if action.state not in TERMINAL or action.effect is not EffectState.NOT_DONE:
        return False
    return action.state is not ActionState.DENIED or action.reason == ApprovalExpired.reason


def _check_asked(use: Use, given: Members) -> None:
    """Raises MalformedRequest."""
    found = sorted(given.keys() - use.asked)
    if found:
        raise MalformedRequest(
            violations=tuple(
                FieldViolation(
                    field=f"input_json/{name}", rule="server_says", description="is for the server to say"
                )
                for name in found
            )
        )


def _bytes_max(capability: Capability) -> int:
    return capability.contract.limits.input_bytes_max
