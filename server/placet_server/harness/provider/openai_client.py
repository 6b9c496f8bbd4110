"""OpenAI's client as it is, but for one walk. It looks through all messages and tools of a request, each time and in
Python, for members that are called otherwise on the wire; there are none, as they come in the wire's own form. That
walk took a third of what a server with agents does, and more with every turn. What is given as extra is sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from openai import AsyncOpenAI, omit
from openai.resources.chat.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions


class PlainOpenAI(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(  # type: ignore[override]
        self,
        *,
        messages: Iterable[Any],
        tools: Any = omit,
        extra_body: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Any:
        as_it_is: dict[str, Any] = {**(extra_body or {}), "messages": list(messages)}
        if tools:
            as_it_is["tools"] = list(tools)
            # It keeps its place among the members.
            tools = ()
        return await super().create(messages=(), tools=tools, extra_body=as_it_is, **rest)
