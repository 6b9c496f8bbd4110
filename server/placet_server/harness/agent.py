"""Agents as programs of the core: which of them can run here, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from placet.app import Tool
from placet.standing import AsyncStanding
from placet_server.core.execution.connectors import OutputText
from placet_server.core.execution.program import EXTRA_MISSING, NamedModel
from placet_server.core.execution.stretch import stretch_of
from placet_server.harness.budget import BYTES_PER_TOKEN_MAX
from placet_server.harness.observer import NoSpans, RunSpans, TurnCounts, Uncounted
from placet_server.harness.program import Surroundings, run
from placet_server.harness.provider.adapter import Models, is_here
from placet_server.harness.provider.answer import AgentsUnavailable
from placet_server.harness.tools import Offers
from placet_server.model.agent import AgentSpec
from placet_server.model.capability import Capability
from placet_server.model.usage import Budget


class Agents:
    """All of a server: see the protocol Programs. `message_of`: a capability as tools carry it."""

    def __init__(self, models: Models, budget_max: Budget, message_of: Callable[[Capability], Any]) -> None:
        self.are_here = is_here()
        self._models = models
        self._budget_max = budget_max
        self._message_of = message_of
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


async def _run(around: Surroundings, capability: Capability, context: AsyncStanding, text: str) -> OutputText:
    return await run(around, stretch_of(context), capability, text)
