"""A client for each model and credential: some are kept, not all for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from placet.testing.model_servers import Say, Stall, Step
from placet_server.harness.provider import adapter
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.answer import AgentsUnavailable, Delta, Pins, TurnFailure
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import TurnProblem
from tests.harness.conversation import WIRES, asked, credentials, models_of


async def test_clients_are_let_go_when_there_are_too_many_but_none_that_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from placet_server.harness.provider import wire as messages

    monkeypatch.setattr(adapter, "CLIENTS_MAX", 2)
    text = [messages.request_text(["hi"])]
    script: dict[str, list[Step]] = {"m0": [Stall(60, 400), Say("used")], "": [Say("used")]}
    async with WIRES["openai"](script) as server:
        names = [f"m{number}" for number in range(4)]
        entry = models_of(server).find("test")
        known = Catalogue([replace(entry, name=name, model=name) for name in names])
        models = Models(lambda: known, credentials)
        begun = asyncio.Event()

        async def hear(_: Delta) -> None:
            begun.set()

        async with asyncio.TaskGroup() as group:
            first = models.provider("m0", "acme")
            used = group.create_task(
                first.turn(text, Pins(), ModelSettings(), on_delta=hear, timeout_seconds=50)
            )
            await begun.wait()
            for name in names[1:]:
                assert ("used",) == (await asked(models.provider(name, "acme"), text)).said
            assert ["m0", "m3"] == [entry.name for entry, _ in models._clients]
            used.cancel()
        await models.close()


async def test_a_client_that_cannot_be_made_is_a_failure_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from placet_server.harness.provider import wire as messages

    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    known = Catalogue([ModelEntry(name="test", kind=Kind.BEDROCK, model="x", credential="test")])
    models = Models(lambda: known, credentials)
    with pytest.raises(TurnFailure) as failure:
        await asked(models.provider("test", "acme"), [messages.request_text(["hi"])])
    assert TurnProblem.INVALID is failure.value.category
    assert "NoRegionError" in failure.value.detail


async def test_a_kind_whose_library_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from placet_server.harness.provider import wire as messages

    monkeypatch.setitem(sys.modules, "boto3", None)
    known = Catalogue([ModelEntry(name="test", kind=Kind.BEDROCK, model="x", region="eu-central-1")])
    models = Models(lambda: known, credentials)
    with pytest.raises(AgentsUnavailable) as missing:
        await asked(models.provider("test", "acme"), [messages.request_text(["hi"])])
    assert "extra_missing" == missing.value.problem
