"""From a configuration to the models that agents are asked with, and to what runs agents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placet.app import App
from placet.supervisor import Supervisor
from placet_server.config import Config, ConfigRefused
from placet_server.core.kernel import Kernel
from placet_server.harness.agent import Agents
from placet_server.harness.observer import TurnCounts
from placet_server.harness.provider import catalogue, credential
from placet_server.harness.provider.adapter import EXTRA, Models
from placet_server.harness.provider.catalogue import Catalogue
from placet_server.harness.provider.credential import Credentials
from placet_server.loops.settings_reader import SettingsReader
from placet_server.model import inline
from placet_server.model.capability import Capability
from placet_server.model.usage import Budget
from placet_server.rpc.convert.capability import capability_message, manifest_of
from placet_server.settings_file import SettingsFile, SettingsFileRefused

if TYPE_CHECKING:
    from placet_server.harness.tracing import RunTracing

log = logging.getLogger("placet.server")


def open_agents(stack: AsyncExitStack, config: Config) -> Agents:
    """Raises ConfigRefused. Nothing is asked, and nothing of the extra is imported."""
    files: list[SettingsFile[Any]] = []
    models = Models(_catalogue(config, files), _credentials(config, files), max(config.agent_runs_max, 1))
    stack.push_async_callback(models.close)
    agents = Agents(
        models,
        budget_max(config),
        capability_message,
        problems_of_files=lambda: [file.problem for file in files if file.problem],
    )
    if files:
        supervisor = Supervisor()
        stack.push_async_callback(supervisor.cancel_all)
        supervisor.start(SettingsReader([file.current for file in files]).run())
    if not agents.are_here and (config.model_file or config.models_allowed):
        log.warning("no agent can run here: install %s", EXTRA)
    return agents


def attach_agents(
    kernel: Kernel, agents: Agents, counts: TurnCounts, tracing: RunTracing | None = None
) -> None:
    """Of a kernel that is whole. `tracing`: None: nothing exports spans."""
    agents.attach(kernel.catalog, counts, tracing)
    if tracing is not None:
        kernel.engine.traces_runs = True


def inline_agent() -> Capability:
    """What runs agents that are in no manifest. Its risk is high: unless a tenant's policies say otherwise, others have
    to say yes to it, and see what it may call.
    """
    app = App("placet")
    app.agent(
        inline.CAPABILITY,
        model="said_when_asked",
        title="Runs an agent that is said with what it is asked",
        risk="high",
        no_approval="The policies of the tenant say who has to agree.",
    )
    (capability,) = manifest_of(app.manifest()).capabilities
    return replace(capability, agent=None, input_schema=inline.INPUT_SCHEMA_TEXT)


def budget_max(config: Config) -> Budget:
    """No run spends more."""
    return Budget(
        turns=config.agent_turns_max,
        tokens=config.agent_tokens_max,
        cost_micros=config.agent_cost_micros_max,
        active_ms=round(config.agent_active_seconds_max * 1000),
    )


def _catalogue(config: Config, files: list[SettingsFile[Any]]) -> Callable[[], Catalogue]:
    try:
        allowed = catalogue.of_names(config.models_allowed)
    except ValueError as error:
        raise ConfigRefused(f"PLACET_MODELS_ALLOWED: {error}") from error
    if config.model_file is None:
        return lambda: allowed
    try:
        file = SettingsFile(
            config.model_file, lambda document: catalogue.parse(document).with_others(allowed)
        )
    except SettingsFileRefused as error:
        raise ConfigRefused(f"PLACET_MODEL_FILE: {error}") from error
    files.append(file)
    return file.current


def _credentials(config: Config, files: list[SettingsFile[Any]]) -> Callable[[], Credentials]:
    if config.credential_file is None:
        none = Credentials({})
        return lambda: none
    try:
        file = SettingsFile(config.credential_file, credential.parse)
    except SettingsFileRefused as error:
        raise ConfigRefused(f"PLACET_CREDENTIAL_FILE: {error}") from error
    files.append(file)
    return file.current
