"""OpenAI's client as it is, but for two walks in Python, which took a third of what a server with agents does, and more
with every turn. It looks through all members of a request for what is called otherwise on the wire; there is nothing,
as they come in the wire's own form. And it makes each piece of an answer member by member, by its type; what has the
types that it should have, compiled code makes as well, and the same of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, AsyncStream, NotGiven, Omit, not_given
from openai.resources.chat.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError

# Of a request, as the client has them; the others come in the order of their names.
_FIRST = ("model", "stream", "service_tier", "messages")


class PlainOpenAI(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    def _process_response_data(self, *, data: object, cast_to: Any, response: Any) -> Any:
        if cast_to is ChatCompletionChunk and (chunk := _chunk(data)) is not None:
            return chunk
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(  # type: ignore[override]
        self,
        *,
        messages: Iterable[Any],
        stream: bool = False,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        timeout: Any = not_given,  # noqa: ASYNC109
        **rest: Any,
    ) -> Any:
        given = {name: value for name, value in rest.items() if not isinstance(value, NotGiven | Omit)}
        given |= {"messages": list(messages), "stream": stream}
        body = {name: given.pop(name) for name in _FIRST if name in given}
        options: dict[str, Any] = {"security": {"bearer_auth": True}}
        if extra_headers is not None:
            options["headers"] = extra_headers
        if not isinstance(timeout, NotGiven):
            options["timeout"] = timeout
        client: Any = self._client
        return await client.post(
            "/chat/completions",
            body={**body, **dict(sorted(given.items())), **(extra_body or {})},
            options=options,
            cast_to=ChatCompletion,
            stream=stream,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )


def _chunk(data: object) -> ChatCompletionChunk | None:
    """None: something of it has another type than it should, which the client keeps as it is."""
    if not (isinstance(data, dict) and _is_as_promised(data)):
        return None
    try:
        return ChatCompletionChunk.model_validate(data)
    except ValidationError:
        return None


def _is_as_promised(data: Mapping[str, Any]) -> bool:
    """Of what has to be there the client looks at no type; of all else it does so itself."""
    choices = data.get("choices")
    return (
        type(data.get("id")) is str
        and type(data.get("created")) is int
        and type(data.get("model")) is str
        and type(choices) is list
        and all(type(each) is dict and type(each.get("index")) is int for each in choices)
    )
