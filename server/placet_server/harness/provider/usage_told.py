"""What a provider tells of its usage may be anything, and is judged once the answer is whole (`wire`). The classes that
OpenAI's client makes of it warn of each odd number, on stderr, whenever they are read; filters against that are the
whole process's. So those of one stream are made to say nothing, and nothing else is.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel


def hush(stream: Any) -> None:
    """Before it is read."""
    take = getattr(stream, "_map_usage", None)
    if take is None:
        return

    def hushed(response: Any) -> Any:
        usage = response.usage
        for told in (usage, getattr(usage, "completion_tokens_details", None)):
            if isinstance(told, BaseModel) and "model_dump" not in vars(type(told)):
                told.__class__ = _hushed(type(told))
        return take(response)

    stream._map_usage = hushed


@cache
def _hushed(kind: type[BaseModel]) -> type[BaseModel]:
    def model_dump(self: BaseModel, **how: Any) -> dict[str, Any]:
        return kind.model_dump(self, **(how | {"warnings": False}))

    return type(kind.__name__, (kind,), {"model_dump": model_dump, "__module__": kind.__module__})
