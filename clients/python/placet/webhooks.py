"""For whoever receives Placet's callbacks: is a request one of them, unchanged and of now?

The format is Standard Webhooks, version 1: HMAC-SHA256 over id, time and body, one signature for each secret, so that
secrets can be rotated. Nothing here needs more than the standard library.

    message = verify(request.headers, raw_body, os.environ["PLACET_WEBHOOK_SECRET"])
    if first_time(message.id):
        handle(message.event)

A delivery whose answer was lost is sent again, with the same id and a new time, for as long as it is tried: about a
day. So do what it asks for once per id, and keep ids for two days at least; a unique index of your database does. It
also stops who has read a request on its way from sending it again within the tolerance.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from email.message import Message
from typing import Any, NamedTuple

SECRET_PREFIX = "whsec_"
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
TOLERANCE_SECONDS = 300.0
SIGNATURES_MAX = 32

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
_HEADERS = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)


class WebhookRefused(Exception):
    """Answer with 400 or 401 and do nothing. `problem` says why, for your log."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class WebhookMessage(NamedTuple):
    """`id` is the same whenever the delivery is sent again. `timestamp`: when it was sent, in seconds. `event`: the
    CloudEvent; its `type`, `subject` and `data` say what has come to pass."""

    id: str
    timestamp: int
    event: dict[str, Any]


def verify(
    headers: Mapping[str, str] | Message | Iterable[tuple[str, str]],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> WebhookMessage:
    """The message, if one of `secrets` has signed exactly these bytes, not longer ago than the tolerance, nor as much
    in the future. `body` is what came, before anything has parsed it.

    Raises WebhookRefused; ValueError for a secret that is none.
    """
    keys = [key_of(secret) for secret in ((secrets,) if isinstance(secrets, str) else secrets)]
    if not isinstance(body, bytes):
        raise TypeError("body is the bytes that came, before anything has parsed them")
    message_id, timestamp, signatures = _read(headers)
    if abs((time.time() if now is None else now) - timestamp) > tolerance_seconds:
        raise WebhookRefused("its time is too far from now")
    expected = [_signature(key, message_id, timestamp, body) for key in keys]
    # All are compared, whichever matches.
    matches = [hmac.compare_digest(one, other) for one in expected for other in signatures]
    if not any(matches):
        raise WebhookRefused("no signature matches")
    return WebhookMessage(message_id, timestamp, _event(body))


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers, as a sender adds them; for tests of receivers. Raises ValueError for a secret that is none."""
    signatures = [_signature(key_of(secret), message_id, timestamp, body) for secret in secrets]
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: b" ".join(signatures).decode(),
    }


def key_of(secret: str) -> bytes:
    """`whsec_` and 24 to 64 bytes in base64. Raises ValueError, without the secret."""
    try:
        key = base64.b64decode(secret.strip().removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(
            f"a secret is {SECRET_PREFIX} and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
        )
    return key


def _read(headers: Mapping[str, str] | Message | Iterable[tuple[str, str]]) -> tuple[str, int, list[bytes]]:
    # The headers of http.server are no Mapping, and have items() all the same.
    pairs = headers.items() if isinstance(headers, Mapping | Message) else headers
    found: dict[str, str] = {}
    for name, value in pairs:
        if name.lower() in _HEADERS:
            if name.lower() in found:
                raise WebhookRefused(f"{name.lower()} is there twice")
            found[name.lower()] = value
    for name in _HEADERS:
        if not found.get(name):
            raise WebhookRefused(f"{name} is missing")
    written = found[TIMESTAMP_HEADER]
    if not (written.isascii() and written.isdigit() and len(written) <= 12):
        raise WebhookRefused(f"{TIMESTAMP_HEADER} is no time in seconds")
    words = found[SIGNATURE_HEADER].split()
    if len(words) > SIGNATURES_MAX:
        raise WebhookRefused("there are too many signatures")
    return found[ID_HEADER], int(written), [word.encode("utf-8", "replace") for word in words]


def _signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> bytes:
    signed = b"%b.%d.%b" % (message_id.encode("utf-8", "replace"), timestamp, body)
    return b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())


def _event(body: bytes) -> dict[str, Any]:
    try:
        event = json.loads(body)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise WebhookRefused("the body is no JSON object")
    return event
