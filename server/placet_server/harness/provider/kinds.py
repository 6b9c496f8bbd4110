"""How the client of each kind of model is made. None of them retries: what is tried again is decided, counted and kept
by the run. Each is told where to go and with which key, so that it asks neither the environment nor anybody else.

A redirect is no answer: it would take the key along, to wherever it says.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, assert_never

import httpx2
from pydantic_ai.models import Model
from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.providers import Provider

from placet_server.harness.provider import exchange
from placet_server.harness.provider.catalogue import Kind, ModelEntry
from placet_server.harness.provider.local import local_model

CONNECT_SECONDS = 10.0
# What a client without a key is given, since some insist on one.
NO_KEY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A model that can be asked, and how it is let go."""

    model: Model
    close: Callable[[], Awaitable[None]]


def make(entry: ModelEntry, key: str | None, headers: Mapping[str, str], connections_max: int) -> Client:
    """Takes long, the first time of a kind: what the kind needs is imported. Not in the event loop."""
    if entry.kind is Kind.LOCAL:
        return Client(model=local_model(), close=_nothing)
    if entry.kind is Kind.BEDROCK:
        return Client(model=_bedrock(entry, key, connections_max), close=_nothing)
    http = exchange.Client(
        # What is compressed all the same is read, too; to ask for it would only cost time.
        headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(entry.request_timeout_seconds, connect=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=connections_max, max_keepalive_connections=connections_max),
        follow_redirects=False,
        verify=_authorities(),
    )
    return Client(model=_model(entry, key or NO_KEY, http), close=http.aclose)


@cache
def _authorities() -> ssl.SSLContext:
    """Reading them takes longer than all else that a client needs, and they are the same for all."""
    return httpx2.create_ssl_context()


def _model(entry: ModelEntry, key: str, http: httpx2.AsyncClient) -> Model:
    match entry.kind:
        case Kind.OPENAI | Kind.OPENAI_COMPATIBLE:
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            provider = OpenAIProvider(openai_client=_openai(entry, key, http))
            profile = None if entry.kind is Kind.OPENAI else _older(provider, entry.model)
            return OpenAIChatModel(entry.model, provider=provider, profile=profile)
        case Kind.OPENAI_RESPONSES:
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            return OpenAIResponsesModel(
                entry.model, provider=OpenAIProvider(openai_client=_openai(entry, key, http))
            )
        case Kind.OLLAMA:
            from pydantic_ai.models.ollama import OllamaModel
            from pydantic_ai.providers.ollama import OllamaProvider

            ollama = OllamaProvider(openai_client=_openai(entry, key, http))
            return OllamaModel(entry.model, provider=ollama, profile=_older(ollama, entry.model))
        case Kind.ANTHROPIC:
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            client = AsyncAnthropic(api_key=key, base_url=entry.base_url, max_retries=0, http_client=http)
            return AnthropicModel(entry.model, provider=AnthropicProvider(anthropic_client=client))
        case Kind.GOOGLE:
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            google = GoogleProvider(api_key=key, base_url=entry.base_url, http_client=http)
            return GoogleModel(entry.model, provider=google)
        case Kind.MISTRAL:
            from mistralai.client import Mistral
            from pydantic_ai.models.mistral import MistralModel
            from pydantic_ai.providers.mistral import MistralProvider

            mistral: Any = Mistral(
                api_key=key, server_url=entry.base_url, async_client=http, retry_config=None
            )
            return MistralModel(entry.model, provider=MistralProvider(mistral_client=mistral))
        case Kind.BEDROCK | Kind.LOCAL:
            raise AssertionError("has no client of HTTP of ours")
        case _:
            assert_never(entry.kind)


def _openai(entry: ModelEntry, key: str, http: httpx2.AsyncClient) -> Any:
    from placet_server.harness.provider.openai_client import PlainOpenAI

    return PlainOpenAI(api_key=key, base_url=entry.base_url, max_retries=0, http_client=http)


def _older(provider: Provider[Any], model: str) -> ModelProfile:
    """Those who are compatible with OpenAI know the older name of the bound of an answer; some pass over the newer one
    without a word, and then nothing would bound it.
    """
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    known = provider.model_profile(model)
    return merge_profile(known, OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False))


def _bedrock(entry: ModelEntry, key: str | None, connections_max: int) -> Model:
    """With a key of Bedrock's own, or with what the machine is allowed."""
    import boto3
    from botocore.config import Config
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    options: dict[str, Any] = {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "read_timeout": entry.request_timeout_seconds,
        "connect_timeout": CONNECT_SECONDS,
        "max_pool_connections": connections_max,
    }
    session: Any = boto3.Session(region_name=entry.region)
    if key is not None:
        session = boto3.Session(botocore_session=_bearer(key), region_name=entry.region)
        options["signature_version"] = "bearer"
    client = session.client("bedrock-runtime", config=Config(**options), endpoint_url=entry.base_url)
    client.meta.events.register("before-send.bedrock-runtime", exchange.begin)
    return BedrockConverseModel(entry.model, provider=BedrockProvider(bedrock_client=client))


def _bearer(key: str) -> Any:
    from botocore.session import Session
    from botocore.tokens import FrozenAuthToken

    class Bearer(Session):  # type: ignore[misc]
        def get_auth_token(self, **_: Any) -> FrozenAuthToken:
            return FrozenAuthToken(key)

        def get_credentials(self) -> None:
            return None

    return Bearer()


async def _nothing() -> None:
    pass
