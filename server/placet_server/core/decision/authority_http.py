"""Roles and groups from a service of the operator's, asked over HTTP.

It is told whom by `POST {"tenant": …, "subject": …, "kind": …}` and answers 200 with `{"roles": […], "groups": […]}`,
or 404 for somebody without any. Anything else, and no answer in time, is no answer: nothing is decided then. What it
said is kept for a while, never longer, also while it is away."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from placet_server.core.decision.authority import Authority, authority_of
from placet_server.model.caller import Caller
from placet_server.model.identity_errors import AuthorityUnavailable

if TYPE_CHECKING:
    from httpx import AsyncClient

ANSWER_BYTES_MAX = 64 * 1024
ANSWER_SECONDS = 5.0
AT_ONCE_MAX = 16
KNOWN_MAX = 10_000

log = logging.getLogger("placet.identity")

_Who = tuple[str, str, str]


class _NoAnswer(Exception):
    """Why, for the log."""


class HttpAuthority:
    """Belongs to one event loop."""

    def __init__(self, url: str, *, keep_seconds: float, token_file: Path | None = None) -> None:
        """`token_file`: a bearer token for the service, read at every question."""
        # Half a second of import that only this source needs.
        import httpx

        self._url = url
        self._keep_seconds = keep_seconds
        self._token_file = token_file
        # No proxies of the environment, and no redirects: the operator's own URL, and nothing it points at.
        self._client = httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS)
        self._failures: tuple[type[Exception], ...] = (
            _NoAnswer,
            TimeoutError,
            OSError,
            httpx.HTTPError,
            httpx.InvalidURL,
        )
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._known: dict[_Who, tuple[float, Authority]] = {}

    async def of(self, caller: Caller) -> Authority:
        """Raises AuthorityUnavailable."""
        who = caller.tenant, caller.subject, caller.kind.value
        found = self._known.get(who)
        if found is not None and monotonic() < found[0]:
            return found[1]
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._at_once:
                authority = await self._ask(who)
        except self._failures as error:
            log.warning("who may decide cannot be known: %s: %s", type(error).__name__, error)
            raise AuthorityUnavailable from error
        self._keep(who, authority)
        return authority

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, who: _Who) -> Authority:
        headers = {"accept": "application/json"}
        if self._token_file is not None:
            token = await asyncio.to_thread(self._token_file.read_text)
            headers["authorization"] = f"Bearer {token.strip()}"
        body = dict(zip(("tenant", "subject", "kind"), who, strict=True))
        return await _asked(self._client, self._url, headers, body)

    def _keep(self, who: _Who, authority: Authority) -> None:
        if len(self._known) >= KNOWN_MAX:
            # Dicts keep their order of insertion: the oldest quarter goes.
            for old in list(self._known)[: KNOWN_MAX // 4]:
                del self._known[old]
        self._known.pop(who, None)
        self._known[who] = (monotonic() + self._keep_seconds, authority)


async def _asked(client: AsyncClient, url: str, headers: dict[str, str], body: dict[str, str]) -> Authority:
    async with client.stream("POST", url, headers=headers, json=body) as response:
        if response.status_code == 404:
            return Authority()
        if response.status_code != 200:
            raise _NoAnswer(f"status {response.status_code}")
        content = b""
        async for part in response.aiter_bytes():
            content += part
            if len(content) > ANSWER_BYTES_MAX:
                raise _NoAnswer(f"more than {ANSWER_BYTES_MAX} bytes")
    try:
        return authority_of(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise _NoAnswer(f"the answer: {error}") from error
