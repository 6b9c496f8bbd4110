"""What a provider tells of its usage may be anything, and is judged once the answer is whole (`wire`). The classes that
OpenAI's client makes of it warn of each odd number, on stderr, whenever they are read; filters against that are the
whole process's. So those of one stream are made to say nothing, and nothing else is.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage


def take_as_told(stream: StreamedResponse) -> None:
    """Before it is read. Of its class, as what a stream holds itself and needs the stream would keep it in memory."""
    stream.__class__ = _taking(type(stream))


@cache
def _taking(kind: type[StreamedResponse]) -> type[StreamedResponse]:
    members: dict[str, Any] = {"__module__": kind.__module__, "_add_usage": _last}
    take = getattr(kind, "_map_usage", None)
    if take is not None:

        def hushed(self: StreamedResponse, response: Any) -> Any:
            usage = response.usage
            for told in (usage, getattr(usage, "completion_tokens_details", None)):
                if isinstance(told, BaseModel) and "model_dump" not in vars(type(told)):
                    told.__class__ = _hushed(type(told))
            return take(self, response)

        members["_map_usage"] = hushed
    return type(kind.__name__, (kind,), members)


def _last(self: StreamedResponse, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
    """Of those who tell it more than once, each tells what it is by then. The library would add them up."""
    if reported:
        StreamedResponse._add_usage(self, usage, reported=True, cumulative=True)


@cache
def _hushed(kind: type[BaseModel]) -> type[BaseModel]:
    def model_dump(self: BaseModel, **how: Any) -> dict[str, Any]:
        return kind.model_dump(self, **(how | {"warnings": False}))

    return type(kind.__name__, (kind,), {"model_dump": model_dump, "__module__": kind.__module__})
