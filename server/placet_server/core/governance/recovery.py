"""A person's verdict on an effect in doubt, and trying again what was given up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from placet_server.core.admission.catalog import Catalog
from placet_server.core.execution.engine import Engine
from placet_server.core.governance.governor import hold
from placet_server.core.governance.use import Members, Proposal
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import check_text
from placet_server.core.recovery.redrive import AttemptsOf, RedriveCommand, Selected, redrive
from placet_server.core.recovery.resolve import OUTPUT_BYTES_MAX, Finding, ResolveCommand, resolve_ambiguous
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.document import read, written
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.json_text import canonicalize, canonicalize_value
from placet_server.model.query import DeadLetterFilter

# Of the capabilities whose actions are tried again.
SHOWN_MAX = 16


class ResolveAmbiguous:
    """On the attempt that was in doubt when it was asked for."""

    scope = "recovery.write"
    asked = frozenset({"action_id", "finding", "output", "reason", "evidence", "expected_attempt"})

    def __init__(self, kernel: Kernel) -> None:
        self._engine: Engine = kernel.engine
        self._catalog = kernel.catalog

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        action = await self.look(caller, command_of(given))
        return Proposal(
            {"capability": action.capability, "attempt": action.attempt}, basis=str(action.generation)
        )

    async def look(self, caller: Caller, command: ResolveCommand) -> Action:
        """The action as it stands, after every check."""
        return await self._resolve(caller, replace(command, validate_only=True))

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        # Of two attempts one writes: a verdict goes onto the row as it was read, and knows whose it is.
        command = replace(command_of(members), expected_attempt=members["attempt"], request=action.action_id)
        done = await self._resolve(caller, command)
        return {"action_id": done.action_id, "state": done.state.value}

    async def _resolve(self, caller: Caller, command: ResolveCommand) -> Action:
        return await resolve_ambiguous(self._engine, caller, command, self._capability_of)

    async def _capability_of(self, action: Action) -> Capability:
        entry = await self._catalog.get_capability(action.requester.tenant, action.capability, action.version)
        return entry.stored.capability


class Redrive:
    """Of exactly those actions that were selected when it was asked for, each by itself."""

    scope = "recovery.write"
    asked = frozenset({"action_ids", "matching", "count_max", "attempts", "reason"})

    def __init__(self, kernel: Kernel) -> None:
        self._journal = kernel.journal
        self._catalog = kernel.catalog

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        _check_selection(given)
        looked = await self.look(caller, _redrive_of(given))
        capabilities = sorted({each.capability for each in looked if each.changed})
        found = {
            "selected": [each.action_id for each in looked],
            "passed_over": [each.action_id for each in looked if not each.changed],
            "redrives": sum(each.changed for each in looked),
            "capabilities": capabilities[:SHOWN_MAX],
        }
        return Proposal(found, basis=",".join(f"{each.action_id}:{each.sequence}" for each in looked))

    async def look(self, caller: Caller, command: RedriveCommand) -> list[Selected]:
        """What it would do."""
        looking = replace(command, validate_only=True)
        return await redrive(self._journal, caller, looking, attempts_by_contract(self._catalog))

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        command = replace(_redrive_of(members), request=action.action_id)
        over = members["passed_over"]
        agreed = [each for each in members["selected"] if each not in set(over)]
        results: dict[str, Selected] = {}
        if agreed:
            attempts_of = attempts_by_contract(self._catalog)
            wanted = replace(command, action_ids=tuple(agreed))
            done = await redrive(self._journal, caller, wanted, attempts_of, partial(hold, action=action))
            results |= {each.action_id: each for each in done}
        if over:
            looked = await self.look(caller, replace(command, action_ids=tuple(over)))
            results |= {each.action_id: _not_agreed(each) for each in looked}
        return {"results": [written(results[each]) for each in members["selected"]]}


def redrive_members(command: RedriveCommand) -> Members:
    """As a caller gives them. Raises MalformedRequest."""
    check_text(command.reason)
    members: Members = {"attempts": command.attempts, "reason": command.reason}
    if command.action_ids:
        return members | {"action_ids": list(command.action_ids)}
    return members | {"matching": written(command.matching), "count_max": command.count_max}


def results_of(output: Members) -> list[Selected]:
    """Of a redrive's output."""
    return [read(Selected, {"state": None} | each) for each in output["results"]]


def resolve_members(command: ResolveCommand) -> Members:
    """As a caller gives them. Raises MalformedRequest, and what `canonicalize` raises for an output that cannot be."""
    check_text(command.reason, command.evidence)
    members: Members = {
        "action_id": command.action_id,
        "finding": command.finding.value,
        "reason": command.reason,
        "evidence": command.evidence,
    }
    if command.expected_attempt:
        members["expected_attempt"] = command.expected_attempt
    if command.finding is Finding.DONE:
        output = canonicalize(command.output_json, bytes_max=OUTPUT_BYTES_MAX, field="output_json")
        members["output"] = output.value
    return members


def command_of(members: Members) -> ResolveCommand:
    """Raises MalformedRequest."""
    finding = Finding(members["finding"])
    if ("output" in members) != (finding is Finding.DONE):
        text = "give an output with DONE, and only then"
        raise MalformedRequest(
            violations=(
                FieldViolation(field="input_json/output", rule="output_of_what_was_done", description=text),
            )
        )
    output = ""
    if finding is Finding.DONE:
        output = canonicalize_value(members["output"], bytes_max=OUTPUT_BYTES_MAX).text
    return ResolveCommand(
        action_id=members["action_id"],
        finding=finding,
        output_json=output,
        reason=members["reason"],
        evidence=members["evidence"],
        expected_attempt=members.get("expected_attempt", 0),
    )


def attempts_by_contract(catalog: Catalog) -> AttemptsOf:
    """Each contract is read once, as a call may redrive a thousand actions."""
    known: dict[tuple[str, str], int] = {}

    async def attempts_of(action: Action) -> int:
        pinned = action.capability, action.version
        if pinned not in known:
            try:
                entry = await catalog.get_capability(action.requester.tenant, *pinned)
            except CapabilityNotFound:
                return action.attempts_max
            known[pinned] = entry.stored.capability.contract.attempts_max
        return known[pinned]

    return attempts_of


def _not_agreed(looked: Selected) -> Selected:
    """It could not be tried again when that was decided: if it could be by now, nobody has said yes to that."""
    return replace(looked, changed=False, refused_rule="moved") if looked.changed else looked


def _check_selection(given: Members) -> None:
    """Raises MalformedRequest."""
    if ("action_ids" in given) == ("matching" in given):
        text = "give action_ids or matching, not both"
        raise MalformedRequest(
            violations=(FieldViolation(field="input_json", rule="ids_or_matching", description=text),)
        )


def _redrive_of(members: Members) -> RedriveCommand:
    given: dict[str, Any] = {name: members[name] for name in Redrive.asked & members.keys()}
    matching = read(DeadLetterFilter, given.pop("matching", {}))
    ids = tuple(given.pop("action_ids", ()))
    return RedriveCommand(action_ids=ids, matching=matching, **given)
