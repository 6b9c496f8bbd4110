"""A file of models that was spoilt while nobody asks an agent is told all the same: in the log, and to operators."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from placet_server import settings_file
from placet_server.agent_setup import open_agents
from placet_server.cli.document import document_of
from placet_server.cli.server import agent_facts
from placet_server.config import Config
from placet_server.loops import settings_reader
from placet_server.model.usage import Budget
from placet_server.rpc.convert.server import agent_support
from tests.core.kernels import until

GOOD = '[models.one]\nkind = "ollama"\nmodel = "x"\n'
BAD = '[models.two]\nkind = "ollama"\nmodel = "x"\nbase_urll = "http://127.0.0.1"\n'


async def test_a_file_that_was_spoilt_is_told_once_and_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings_file, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(settings_reader, "POLL_SECONDS", 0.001)
    path = tmp_path / "models.toml"
    path.write_text(GOOD)
    async with AsyncExitStack() as stack:
        agents = open_agents(stack, Config(model_file=path))  # type: ignore[call-arg]
        assert [] == agents.problems_of_files()
        path.write_text(GOOD + BAD)
        await until(lambda: bool(agents.problems_of_files()))
        (problem,) = agents.problems_of_files()
        assert "models.two.base_urll" in problem
        models = await agents.models()
        assert (["one"], 1) == ([each.name for each in models], caplog.text.count("stays in force"))
        support = agent_support(True, models, Budget(), agents.problems_of_files())
        assert ("not in force", problem) in agent_facts({"agents": document_of(support)})
        path.write_text(GOOD)
        await until(lambda: not agents.problems_of_files())
