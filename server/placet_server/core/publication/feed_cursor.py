"""Where a reader stands in its tenant's feed: opaque text, bound to tenant and filter. It grants nothing."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import sha256

import orjson

from placet_server.core.publication.cursor import opaque
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.query import FeedFilter
from placet_server.store.feed import FeedPosition

_HASH_BYTES = 12
_TEXT = re.compile(
    r"2\.([0-9]{1,5})\.([0-9]{1,18})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,18})"
)
_EPOCH_MAX = 2**15 - 1


class FeedCursors:
    """Of the readers of one tenant with one filter."""

    def __init__(self, tenant: str, wanted: FeedFilter) -> None:
        labels = sorted(wanted.labels.items())
        document = [tenant, sorted(wanted.capabilities), sorted(wanted.types), labels, wanted.root_id]
        self._bound = sha256(orjson.dumps(document)).digest()[:_HASH_BYTES]

    def encode(self, position: FeedPosition) -> str:
        text = f"2.{position.epoch}.{position.xid}.{position.action_id}.{position.sequence}"
        return opaque(self._bound + text.encode())

    def decode(self, cursor: str) -> FeedPosition:
        """Raises MalformedRequest for what this feed never gave out."""
        try:
            content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            found = _TEXT.fullmatch(content[_HASH_BYTES:].decode())
        except (binascii.Error, ValueError):
            content, found = b"", None
        if found is None or content[:_HASH_BYTES] != self._bound or int(found[1]) > _EPOCH_MAX:
            violation = FieldViolation(
                field="after_cursor", rule="cursor", description="not a cursor of this feed and filter"
            )
            raise MalformedRequest(violations=(violation,))
        return FeedPosition(int(found[1]), int(found[2]), found[3], int(found[4]))
