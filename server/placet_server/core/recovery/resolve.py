"""Effects that may have happened, and a person's verdict on one of them.

A verdict is written as a rescuer writes: under the lease of the lost attempt, and only onto the row as it was read. So
the late true answer of that attempt and the verdict cannot both win: whichever comes first ends the action, and the
other one finds it ended. That nothing was done can only be said once the attempt cannot act any more; that it was done
can be said at once, as no later answer makes it untrue. Who said so, why, and on what evidence is in the event, in the
same statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson

from placet_server.core.execution.ending import Returned
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import NOT_DONE, judge, judge_undone
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import check_text, now_us
from placet_server.core.publication.settle import settle
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.errors import FieldViolation, MalformedRequest, NotFound, StaleDigest, StateConflict
from placet_server.model.json_text import CanonicalJson, canonicalize
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.query import PAGE_SIZE_MAX
from placet_server.store import ambiguous
from placet_server.store.ambiguous import Ambiguous, Doubted

# A handler is asked to stop at the deadline of its attempt; so long after it, nothing of it acts any more.
GRACE_SECONDS = 30.0
OUTPUT_BYTES_MAX = 3 * 2**20

CapabilityOf = Callable[[Action], Awaitable[Capability]]
"""The capability at the version that the action has pinned."""


class Finding(StrEnum):
    """What a person found out about an effect."""

    DONE = "DONE"
    NOT_DONE = "NOT_DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveCommand:
    """`output_json` is for DONE alone. `expected_attempt` 0: whichever attempt it is. `request` ties resends together:
    what was said by it has been said, whatever has come after.
    """

    action_id: str
    finding: Finding
    output_json: str = ""
    reason: str
    evidence: str
    expected_attempt: int = 0
    validate_only: bool = False
    request: str = ""


async def list_ambiguous(
    journal: Journal, *, tenant: str | None, capabilities: Sequence[str], page_size: int, after: str = ""
) -> list[Ambiguous]:
    """Oldest first, without payloads; `after` is the last id of the page before. `tenant` None: of all tenants.

    Raises MalformedRequest for a capability that no row can have.
    """
    check_text(*capabilities)
    async with journal.pool.connection() as connection:
        return await ambiguous.list_page(
            connection,
            tenant,
            capabilities=capabilities,
            after=after or None,
            page_size=min(page_size, PAGE_SIZE_MAX),
            grace_seconds=GRACE_SECONDS,
            now=journal.clock.now(),
        )


async def resolve_ambiguous(
    engine: Engine, caller: Caller, command: ResolveCommand, capability_of: CapabilityOf
) -> Action:
    """The action as the verdict left it, also if this caller's same verdict did so before.

    Within the caller's tenant. Raises NotFound, StateConflict, StaleDigest for another attempt than expected, and
    MalformedRequest or what `canonicalize` raises for an output that cannot be.
    """
    check_text(command.reason, command.evidence)
    while True:
        found = await _find(engine.journal, caller, command)
        if _is_resolved_by(found, caller, command):
            return found.action
        _check(found, command)
        output = await _output(found.action, command, capability_of)
        if command.validate_only:
            return found.action
        # Not moved by us means moved by somebody else: the next look says what that was.
        await asyncio.shield(engine.supervisor.start(_write(engine, caller, command, found.action, output)))


async def _find(journal: Journal, caller: Caller, command: ResolveCommand) -> Doubted:
    async with journal.pool.connection() as connection:
        found = await ambiguous.find(
            connection,
            caller.tenant,
            command.action_id,
            grace_seconds=GRACE_SECONDS,
            now=journal.clock.now(),
        )
    if found is None:
        raise NotFound(kind="action", name=command.action_id)
    return found


def _check(found: Doubted, command: ResolveCommand) -> None:
    action = found.action
    if action.state is not ActionState.AMBIGUOUS:
        raise _conflict(action, "not_ambiguous")
    if command.expected_attempt not in (0, action.attempt):
        raise StaleDigest(expected=str(command.expected_attempt), actual=str(action.attempt))
    if command.finding is Finding.NOT_DONE and found.attempt_may_act:
        raise _conflict(action, "attempt_may_act")


def _conflict(action: Action, rule: str) -> StateConflict:
    return StateConflict(action_id=action.action_id, state=action.state.value, rule=rule)


async def _output(
    action: Action, command: ResolveCommand, capability_of: CapabilityOf
) -> CanonicalJson | None:
    """What the effect returned, past the gate that a handler's output passes."""
    if command.finding is Finding.NOT_DONE:
        return None
    capability = await capability_of(action)
    bytes_max = capability.contract.limits.output_bytes_max
    output = canonicalize(command.output_json, bytes_max=bytes_max, field="output_json")
    violations = tuple(
        FieldViolation(field=f"output_json{v.path}", rule="output_schema", description=v.message)
        for v in capability.compiled_output.violations(output.value)
    )
    if violations:
        raise MalformedRequest(violations=violations)
    return output


async def _write(
    engine: Engine, caller: Caller, command: ResolveCommand, action: Action, output: CanonicalJson | None
) -> None:
    now = await now_us(engine.journal)
    if output is None:
        verdict = judge_undone(action, NOT_DONE, command.reason, retryable=False, now_us=now)
    else:
        ending = Returned(output_json=output.text, output_digest=output.digest.hex())
        verdict = judge(action, ending, now_us=now)
    await settle(engine.journal, action, verdict, as_read=True, resolution=_resolution(caller, command))


def _resolution(caller: Caller, command: ResolveCommand) -> dict[str, str]:
    said = {
        "evidence": command.evidence,
        "reason": command.reason,
        "requester": caller.subject,
        "verdict": command.finding.value,
    }
    return said | {"request": command.request} if command.request else said


def _is_resolved_by(found: Doubted, caller: Caller, command: ResolveCommand) -> bool:
    """Whether this very verdict ended the action, which may have been redriven since, or the same one does now."""
    said = {} if found.last_end is None else orjson.loads(found.last_end).get("resolution") or {}
    if command.request and said.get("request") == command.request:
        return True
    if found.action.state not in TERMINAL or not said:
        return False
    if said | {"request": ""} != _resolution(caller, command) | {"request": ""}:
        return False
    if command.finding is Finding.NOT_DONE:
        return True
    output = canonicalize(command.output_json, bytes_max=OUTPUT_BYTES_MAX, field="output_json")
    return output.text == found.action.output_json
