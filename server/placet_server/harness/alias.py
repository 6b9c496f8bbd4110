"""What a model calls a capability by: providers allow letters, digits, "_" and "-", and 64 of them."""

from __future__ import annotations

from hashlib import sha256

from placet_server.harness.provider.answer import FINAL_OUTPUT

LENGTH_MAX = 64
_DIGEST_LENGTH = 8


def alias_of(name: str) -> str:
    """No capability has a "-" in its name, so it stands for ".": `orders.lookup` is `orders-lookup`. What is too long,
    or is a tool of ours, ends with a digest of the name.
    """
    alias = name.replace(".", "-")
    if len(alias) <= LENGTH_MAX and alias != FINAL_OUTPUT:
        return alias
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{alias[: LENGTH_MAX - 1 - _DIGEST_LENGTH]}-{digest}"
