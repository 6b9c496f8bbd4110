"""A model is asked under its own name alone: what the operator does not name is refused, nothing
stands in for it.
"""

from __future__ import annotations

import pytest

from placet.testing.model_servers import OpenAIServer, Say
from placet_server.harness.provider import catalogue
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.answer import AgentsUnavailable, TurnFailure
from placet_server.harness.provider.catalogue import LOCAL_MODEL, Kind
from placet_server.harness.provider.credential import Credentials
from placet_server.model.entry import TurnProblem
from placet_server.model.usage import Price
from tests.harness.conversation import asked, models_of

FILE = {
    "models": {
        "fast": {
            "kind": "openai",
            "model": "gpt-5-mini",
            "price": {"input": "0.25", "output": "2.00", "cached_input": "0.025"},
        },
        "ours": {"kind": "openai_compatible", "model": "qwen3", "base_url": "http://models.internal:8000/v1"},
        LOCAL_MODEL: {"kind": "local", "model": LOCAL_MODEL},
    }
}


def test_only_names_of_the_operator_are_known() -> None:
    models = catalogue.parse(FILE).with_others(catalogue.of_names(["anthropic:claude-x"]))
    assert ("anthropic:claude-x", "fast", "ours", LOCAL_MODEL) == models.names
    for name in (
        "",
        "FAST",
        "fast ",
        "gpt-5-mini",
        "openai:gpt-5-mini",
        "anthropic:claude-y",
        "anthropic",
        "test",
    ):
        with pytest.raises(AgentsUnavailable) as unknown:
            models.find(name)
        assert "model_unknown" == unknown.value.problem


def test_prices_are_exact() -> None:
    entry = catalogue.parse(FILE).find("fast")
    assert Price(input_micros=250_000, output_micros=2_000_000, cached_micros=25_000) == entry.price


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "openai"},
        {"kind": "gpt", "model": "x"},
        {"kind": "openai", "model": "x", "temperature": 1},
        {"kind": "openai", "model": "x", "base_url": "file:///etc/passwd"},
        {"kind": "openai", "model": "x", "base_url": "https://user:pass@host/v1"},
        {"kind": "openai", "model": "x", "base_url": "https://host/v1?key=1"},
        {"kind": "openai_compatible", "model": "x"},
        {"kind": "local", "model": "gpt-5"},
        {"kind": "local", "model": LOCAL_MODEL, "base_url": "http://host"},
        {"kind": "bedrock", "model": "x", "base_url": "http://host"},
        {"kind": "openai", "model": "x", "price": {"input": 0.25, "output": "1"}},
        {"kind": "openai", "model": "x", "price": {"input": "-1", "output": "1"}},
        {"kind": "openai", "model": "x", "headers": {"X-Team": "a"}},
        {"kind": "openai", "model": "x", "headers": {"x-team": "a\nb"}},
        {"kind": "openai", "model": "x", "max_tokens": 0},
        {"kind": "openai", "model": "x", "max_tokens": True},
        {"kind": "openai", "model": "x", "request_timeout_seconds": True},
        {"kind": "openai", "model": "x", "base_url": "http://h:x/"},
        {"kind": "openai", "model": "x", "base_url": "http://h/\nv1"},
        {"kind": "openai", "model": "x\0"},
        {"kind": "openai", "model": "x", "credential": "a\n"},
    ],
)
def test_what_cannot_be_meant_is_refused_whole(model: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="bad"):
        catalogue.parse({"models": {**FILE["models"], "bad": model}})


@pytest.mark.parametrize(
    "name", ["gpt-5", "openai:", ":x", "gpt:x", "openai_compatible:x", "local:gpt-5", "OpenAI:gpt-5"]
)
def test_names_without_a_kind_that_we_know_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="local"):
        catalogue.of_names([name])


def test_names_of_the_file_cannot_look_like_a_kind_and_a_model() -> None:
    with pytest.raises(ValueError, match="name"):
        catalogue.parse({"models": {"openai:gpt-5": {"kind": "local", "model": LOCAL_MODEL}}})


def test_the_usual_variable_is_read_for_the_kinds_own_address_only() -> None:
    assert catalogue.parse(FILE).find("fast").key is not None
    assert catalogue.parse(FILE).find("ours").key is None
    elsewhere = {"kind": "openai", "model": "x", "base_url": "https://elsewhere.example/v1"}
    assert catalogue.parse({"models": {"m": elsewhere}}).find("m").key is None


def test_a_budget_in_money_needs_a_price() -> None:
    known = catalogue.parse(FILE)
    models = Models(lambda: known, lambda: Credentials({}))
    assert Kind.OPENAI is models.find("fast", with_price=True).kind
    with pytest.raises(AgentsUnavailable) as unknown:
        models.find("ours", with_price=True)
    assert "price_unknown" == unknown.value.problem


async def test_a_model_that_the_provider_does_not_know_is_refused_and_no_other_is_asked() -> None:
    from placet_server.harness.provider import wire

    async with OpenAIServer({"another": [Say("ok")]}) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [wire.request_text(["hi"])])
        await models.close()
        assert ["model-x"] == [request.json["model"] for request in server.requests]
    assert (TurnProblem.REFUSED, 404) == (failure.value.category, failure.value.status)
