"""What spans of runs say, by the names of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from placet_server.harness.observer import PROVIDERS
from placet_server.harness.provider.catalogue import ModelEntry
from placet_server.model.agent import ModelSettings
from placet_server.model.entry import PinnedTool
from placet_server.model.usage import Usage

Attributes = dict[str, AttributeValue]


def fail(span: Span, error: str) -> None:
    """No text of an error: it may say what is secret."""
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))


def of_model(entry: ModelEntry) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS[entry.kind],
        "gen_ai.request.model": entry.model,
        "gen_ai.request.stream": True,
    }
    if entry.base_url:
        url = urlsplit(entry.base_url)
        attributes["server.address"] = url.hostname or ""
        attributes["server.port"] = url.port or (443 if url.scheme == "https" else 80)
    return attributes


def of_settings(settings: ModelSettings) -> Attributes:
    """What the request says of how to answer."""
    wanted = {
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.top_p": settings.top_p,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def of_response(text: str, finish: str) -> Attributes:
    message = orjson.loads(text)
    wanted = {
        "gen_ai.response.model": message.get("model_name"),
        "gen_ai.response.id": message.get("provider_response_id"),
        "gen_ai.response.finish_reasons": [finish] if finish else None,
    }
    return {name: value for name, value in wanted.items() if value}


def of_usage(usage: Usage) -> Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }


def of_tool(tool: PinnedTool, call_id: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.description": tool.description,
    }
