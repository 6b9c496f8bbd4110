"""Asking an agent: a call of it, and what it has answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from placet_server.core.admission.execute import execute, execute_stream
from placet_server.core.admission.pipeline import Call, pass_gates
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.ask import Part, part_of
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.store.catalog import StoredCapability


class Asked(NamedTuple):
    """As Executed. `parts`: the answer, if there is one."""

    action: Action
    attached: bool
    parts: tuple[Part, ...]


async def ask(kernel: Kernel, call: Call) -> Asked:
    """Raises MalformedRequest for what is no agent, and what `execute` raises."""
    tenant = call.caller.tenant
    found = await _find(kernel, call)
    action, attached = await execute(kernel, call)
    if action.version != found.capability.version:
        # The key was known, of a run of another version.
        found = await kernel.catalog.find(tenant, action.capability, action.version, even_withdrawn=True)
    return Asked(action, attached, answer_of(found.capability, action.output_json))


async def ask_stream(kernel: Kernel, call: Call) -> AsyncIterator[Event | IdleCheckpoint]:
    """The same, with every event from the first on. After the last event raises what `ask` raises."""
    await _find(kernel, call)
    async with aclosing(execute_stream(kernel, call)) as items:
        async for item in items:
            yield item


async def _find(kernel: Kernel, call: Call) -> StoredCapability:
    """Raises MalformedRequest for what is no agent."""
    wanted = call.invocation
    try:
        found = await kernel.catalog.find(
            call.caller.tenant, wanted.capability, wanted.version or None, even_withdrawn=True
        )
    except CapabilityNotFound:
        # The gates refuse it with all that a refusal has.
        await pass_gates(kernel, call)
        raise
    if found.capability.kind is not CapabilityKind.AGENT:
        violation = FieldViolation(
            field="agent", rule="agent", description=f"{wanted.capability} is no agent; Execute runs it"
        )
        raise MalformedRequest(violations=(violation,))
    return found


def answer_of(agent: Capability, output_json: str | None) -> tuple[Part, ...]:
    """Of a run's output: its last message, or JSON where the agent has a schema for it."""
    if output_json is None:
        return ()
    if agent.output_schema:
        return (Part(json=output_json),)
    return tuple(part_of(each) for each in json.loads(output_json)["parts"])
