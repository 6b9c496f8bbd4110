"""Resume tokens: who holds one may hand a session on, once. Each is burnt for the next, and whoever sends the same
again, with the same key, is given that one again.

What a token is made of is not kept together anywhere: of the store's part nothing follows without the token before,
and the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from dataclasses import replace
from typing import NamedTuple

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.session import get_session
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound
from placet_server.model.run_errors import ResumeTokenSpent, SessionClosed
from placet_server.model.session import Session
from placet_server.store import session as sessions
from placet_server.store import session_token as session_tokens
from placet_server.store.session_token import TokenRow

TOKEN_SECONDS = 24 * 3600.0


class Token(NamedTuple):
    """`digest`, `nonce`: what is kept of it."""

    text: str
    digest: bytes
    nonce: bytes


def first_token(session_id: str, key: str) -> Token:
    """Of a session that is made with this key; without one nobody is given it again."""
    return _made(os.urandom(32), session_id, key or os.urandom(32).hex())


def first_again(session_id: str, key: str, kept: TokenRow) -> str:
    """The same; "" once it is burnt."""
    return _if_current(_made(kept.nonce, session_id, key), kept)


async def resume_session(
    journal: Journal, caller: Caller, session_id: str, token: str, *, key: str
) -> Session:
    """With the next token. Raises NotFound, SessionClosed, ResumeTokenSpent."""
    given, given_key = _digest(token), _digest(key)
    async with journal.pool.tx() as connection:
        now = journal.clock.now()
        locked = await sessions.lock(connection, caller.tenant, session_id, subject=caller.subject, now=now)
        if locked is None:
            raise NotFound(kind="session", name=session_id)
        if not locked.is_open or locked.is_idle:
            raise SessionClosed(session_id=session_id)
        kept = await session_tokens.get_token(connection, caller.tenant, session_id, now)
        if hmac.compare_digest(given, kept.digest):
            if kept.is_expired:
                raise ResumeTokenSpent(session_id=session_id, problem="expired")
            next_token = _made(os.urandom(32), token, key or os.urandom(32).hex())
            await session_tokens.burn_token(
                connection,
                caller.tenant,
                session_id,
                digest=next_token.digest,
                nonce=next_token.nonce,
                burnt_digest=given,
                burnt_key_digest=given_key,
                seconds=TOKEN_SECONDS,
                now=now,
            )
            text = next_token.text
        else:
            text = _again(token, key, kept, given, given_key)
            if not text:
                raise ResumeTokenSpent(session_id=session_id, problem="not_current")
    return replace(await get_session(journal, caller, session_id), resume_token=text)


def _again(token: str, key: str, kept: TokenRow, given: bytes, given_key: bytes) -> str:
    """What was answered to the same request, if that token is not burnt itself."""
    is_same = hmac.compare_digest(given, kept.burnt_digest) and hmac.compare_digest(
        given_key, kept.burnt_key_digest
    )
    return _if_current(_made(kept.nonce, token, key), kept) if is_same and key else ""


def _if_current(token: Token, kept: TokenRow) -> str:
    return token.text if hmac.compare_digest(token.digest, kept.digest) else ""


def _made(nonce: bytes, before: str, key: str) -> Token:
    said = f"placet session {len(before)}:{before}{key}".encode()
    text = base64.urlsafe_b64encode(hashlib.sha256(nonce + said).digest()).decode().rstrip("=")
    return Token(text, _digest(text), nonce)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
