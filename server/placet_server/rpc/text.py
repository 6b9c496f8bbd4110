"""Text that fits a wire: whole characters, bounded bytes, valid UTF-8."""

from __future__ import annotations

_ELLIPSIS = "…"
# What `grpc-message` carries as it is: printable ASCII but for `%`.
_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte != 0x25)


def valid(text: str) -> str:
    """The text with `?` for what UTF-8 cannot carry (lone surrogates)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def cut(text: str, bytes_max: int) -> str:
    """At most `bytes_max` UTF-8 bytes, ending in an ellipsis when something was left out.

    Takes time by what is kept, not by the text's length.
    """
    encoded = text[: bytes_max + 1].encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    kept = encoded[: max(bytes_max - len(_ELLIPSIS.encode()), 0)].decode(errors="ignore")
    return kept + _ELLIPSIS if bytes_max >= len(_ELLIPSIS.encode()) else kept


def percent_encoded_bytes(text: str) -> int:
    """What `grpc-message` takes on the wire: every byte that is no printable ASCII, and `%`, becomes three."""
    encoded = text.encode()
    return len(encoded) + 2 * len(encoded.translate(None, _PLAIN))


def cut_percent_encoded(text: str, bytes_max: int) -> str:
    """As `cut`, measured by percent_encoded_bytes."""
    text = valid(text[: bytes_max + 1])
    if len(text) * 12 <= bytes_max or percent_encoded_bytes(text) <= bytes_max:
        return text
    room = bytes_max - percent_encoded_bytes(_ELLIPSIS)
    for index, character in enumerate(text):
        room -= percent_encoded_bytes(character)
        if room < 0:
            return text[:index] + _ELLIPSIS
    return text
