"""Agents as programs of the core: which of them can run here, and what runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from placet.app import Tool
from placet.standing import AsyncStanding
from placet_server.core.execution.connectors import OutputText
from placet_server.core.execution.program import EXTRA_MISSING, LACKS_MAX, Lack, NamedModel
from placet_server.core.execution.stretch import stretch_of
from placet_server.harness.budget import BYTES_PER_TOKEN_MAX
from placet_server.harness.instruction import InstructionRefused, render
from placet_server.harness.lack import lacks_of
from placet_server.harness.observer import NoSpans, RunSpans, TurnCounts, Uncounted
from placet_server.harness.program import run
from placet_server.harness.provider.adapter import Models, is_here
from placet_server.harness.provider.answer import AgentsUnavailable
from placet_server.harness.surroundings import Surroundings
from placet_server.harness.tools import Offers, ToolsRefused, resolve
from placet_server.model.agent import AgentSpec
from placet_server.model.ask import arguments_of, budget_of, kept_bytes
from placet_server.model.capability import Capability
from placet_server.model.entry_text import ENTRY_BYTES_MAX
from placet_server.model.errors import FieldViolation, PayloadTooLarge
from placet_server.model.gate_errors import InputSchemaViolation
from placet_server.model.inline import spec_of
from placet_server.model.run_errors import AgentUnavailable
from placet_server.model.usage import Budget

_log = logging.getLogger(__name__)


class Agents:
    """All of a server: see the protocol Programs. `message_of`: a capability as tools carry it."""

    def __init__(
        self,
        models: Models,
        budget_max: Budget,
        message_of: Callable[[Capability], Any],
        *,
        problems_of_files: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.are_here = is_here()
        self._models = models
        self._budget_max = budget_max
        self._message_of = message_of
        self._problems_of_files = problems_of_files
        self._around: Surroundings | None = None

    def attach(self, offers: Offers, counts: TurnCounts | None = None, spans: RunSpans | None = None) -> None:
        """What their tools are found in, which knows handlers, and so these; and who is told of what they do."""
        self._around = Surroundings(
            models=self._models,
            offers=offers,
            budget_max=self._budget_max,
            counts=counts or Uncounted(),
            spans=spans or NoSpans(),
        )

    def problem(self, capability: Capability) -> str:
        if not self.are_here or self._around is None:
            return EXTRA_MISSING
        spec = capability.agent
        # Of one that is said with what it is asked, nobody knows the model before.
        return "" if spec is None else self._model_problem(spec)

    def missing(self, capability: Capability, tenant: str) -> str:
        if problem := self.problem(capability):
            return problem
        try:
            if capability.agent is not None:
                self._look(capability.agent, tenant, Budget())
        except AgentsUnavailable as error:
            return error.problem
        return ""

    async def lacks(self, capability: Capability, tenant: str) -> Sequence[Lack]:
        if not self.are_here or self._around is None:
            return (Lack(EXTRA_MISSING),)
        spec = capability.agent
        if spec is None:
            return ()
        problem = self.missing(capability, tenant)
        found = [Lack(problem, spec.model)] if problem else []
        told = lacks_of(self._around.offers, spec, tenant, lambda delegate: self.missing(delegate, tenant))
        async with aclosing(told) as lacks:
            async for lack in lacks:
                if len(found) == LACKS_MAX:
                    break
                found.append(lack)
        return found

    async def check(self, capability: Capability, tenant: str, value: Any) -> None:
        if problem := self.problem(capability):
            raise AgentUnavailable(agent=capability.name, problem=problem)
        assert self._around is not None
        if (size := kept_bytes(value)) > ENTRY_BYTES_MAX:
            raise PayloadTooLarge(bytes=size, bytes_max=ENTRY_BYTES_MAX)
        spec = capability.agent or spec_of(value)
        try:
            self._look(spec, tenant, budget_of(value))
            if capability.agent is None:
                await resolve(self._around.offers, spec, tenant)
            render(spec.instructions, arguments_of(value))
        except AgentsUnavailable as error:
            # Where it is missing is for the operator alone.
            _log.warning("%s cannot be run: %s", capability.name, error)
            raise AgentUnavailable(agent=capability.name, problem=error.problem, model=spec.model) from None
        except ToolsRefused as error:
            raise _unfit(capability, "/agent", "agent_tools", str(error)) from None
        except InstructionRefused as error:
            raise _unfit(capability, "/arguments", "agent_arguments", str(error)) from None

    def _look(self, spec: AgentSpec, tenant: str, asked: Budget) -> None:
        """Raises AgentsUnavailable."""
        budget = spec.budget.tightened(self._budget_max).tightened(asked)
        self._models.find(spec.model, with_price=bool(budget.cost_micros))
        self._models.provider(spec.model, tenant, spec.credential)

    def tool(self, capability: Capability) -> Tool | None:
        return None if self.problem(capability) else self._made(capability)

    def words_bytes_max(self, capability: Capability) -> int:
        spec = capability.agent
        try:
            return 0 if spec is None else self._models.find(spec.model).context_tokens * BYTES_PER_TOKEN_MAX
        except AgentsUnavailable:
            return 0

    async def models(self) -> Sequence[NamedModel]:
        return [NamedModel(name, problem) for name, problem in await self._models.look()]

    def problems_of_files(self) -> Sequence[str]:
        return self._problems_of_files()

    def _model_problem(self, spec: AgentSpec) -> str:
        budget = spec.budget.tightened(self._budget_max)
        try:
            self._models.find(spec.model, with_price=bool(budget.cost_micros))
        except AgentsUnavailable as error:
            return error.problem
        return ""

    def _made(self, capability: Capability) -> Tool:
        """Not kept: the version of one tenant may be another one's name for something else."""
        assert self._around is not None
        return Tool(
            name=capability.name,
            version=capability.version,
            is_async=True,
            wants_context=True,
            streaming=True,
            cancellable=True,
            effect_marked=False,
            call=partial(_run, self._around, capability),
            capability=self._message_of(capability),
        )


def _unfit(capability: Capability, field: str, rule: str, told: str) -> InputSchemaViolation:
    found = FieldViolation(field=field, rule=rule, description=told)
    return InputSchemaViolation(capability=capability.name, version=capability.version, violations=(found,))


async def _run(around: Surroundings, capability: Capability, context: AsyncStanding, text: str) -> OutputText:
    return await run(around, stretch_of(context), capability, text)
