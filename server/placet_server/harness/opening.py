"""How a run opens: what it may call and spend, and what it is told first, pinned for all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.for_sure import for_sure
from placet_server.harness.budget import bound_of_further
from placet_server.harness.ending import failure, spend
from placet_server.harness.history import place_of, saw_sensitive
from placet_server.harness.instruction import InstructionRefused, render
from placet_server.harness.surroundings import Surroundings
from placet_server.harness.tools import ToolsRefused, resolve
from placet_server.model.agent import AgentSpec
from placet_server.model.ask import arguments_of, budget_of
from placet_server.model.caller import EVERY_SCOPE, SENSITIVE_SCOPE, Caller
from placet_server.model.capability import Capability
from placet_server.model.entry import Entry, History, Opened, PinnedTool
from placet_server.model.entry_text import EntryRefused, entry_of


async def open_run(
    around: Surroundings, stretch: Stretch, capability: Capability, spec: AgentSpec, text: str
) -> tuple[Opened, Entry]:
    """What holds for the whole run, whatever the catalogue and the operator's files say later. Raises Failure, Ended,
    AgentsUnavailable.
    """
    caller = stretch.attempt.run.work.caller
    history, saw = await _place(stretch, caller)
    value = json.loads(text)
    arguments = arguments_of(value)
    # What an earlier try of this very step has spent is gone.
    before, asked = await stretch.entries.spent_before(), budget_of(value)
    if (spent := bound_of_further(asked, before)) is not None:
        spend(spent)
    asked = asked.without(before)
    budget = spec.budget.tightened(around.budget_max).tightened(asked)
    model = around.models.find(spec.model, with_price=bool(budget.cost_micros))
    # Itself, and what has asked it.
    asking = (capability.name, *(each.subject for each in caller.delegation))
    try:
        tools = await for_sure(
            stretch.attempt.journal,
            lambda: resolve(around.offers, spec, caller.tenant, asking),
        )
        opened = Opened(
            spec_digest=capability.contract_digest,
            model=spec.model,
            instructions=render(spec.instructions, arguments),
            tools=tools,
            budget=budget,
            price=model.price,
            settings=replace(spec.settings, max_tokens=min(spec.settings.max_tokens, model.max_tokens)),
            retry=spec.provider_retry,
            arguments=json.dumps(arguments, ensure_ascii=False, sort_keys=True),
            output_schema=capability.output_schema or None,
            output_repairs_max=spec.output_repairs_max,
            history=history,
            memory=spec.memory,
            saw_sensitive=saw or (sees_sensitive(caller) and _shows_sensitive(tools)),
        )
        return opened, entry_of(opened)
    except ToolsRefused as error:
        raise failure("agent_tools", f"{capability.name}: {error}.") from None
    except InstructionRefused as error:
        raise failure("agent_arguments", f"{capability.name}: {error}.", "invalid") from None
    except EntryRefused as error:
        raise failure("agent_tools", f"{capability.name} and its tools are too large: {error}.") from None


def sees_sensitive(caller: Caller) -> bool:
    return not caller.scopes.isdisjoint((EVERY_SCOPE, SENSITIVE_SCOPE))


async def _place(stretch: Stretch, caller: Caller) -> tuple[History | None, bool]:
    """In its session; and whether what was said there may hold what contracts call sensitive."""
    history = await place_of(stretch)
    saw = await saw_sensitive(stretch, history)
    if saw and not sees_sensitive(caller):
        told = f"What was said in the session needs scope {SENSITIVE_SCOPE}: begin another one."
        raise failure("session_sensitive", told)
    return history, saw


def _shows_sensitive(tools: Sequence[PinnedTool]) -> bool:
    """To a run that may see it. Delegates tell it in words."""
    return any(tool.sensitive or tool.delegate for tool in tools)
