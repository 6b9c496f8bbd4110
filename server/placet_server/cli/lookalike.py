"""Letters that look like others: a Cyrillic U+0430 in a Latin name is another name, and nobody sees it."""

from __future__ import annotations

import unicodedata

SHOWN_MAX = 4
# Writings of which letters are taken for Latin ones.
_ALIKE = frozenset(
    {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "FULLWIDTH", "MATHEMATICAL"}
)


def not_ascii(name: str) -> str:
    """Of a name that is mostly ASCII: which letters of it are not; "" if all are."""
    return _told({character for character in name if not character.isascii()})


def mixed_writing(text: str) -> str:
    """Which letters of `text` are of a writing that is taken for Latin, if it has Latin ones, too; "" if none are."""
    if text.isascii() or not any(character.isascii() and character.isalpha() for character in text):
        return ""
    return _told({c for c in text if not c.isascii() and _name(c).partition(" ")[0] in _ALIKE})


def _told(characters: set[str]) -> str:
    shown = sorted(characters)[:SHOWN_MAX]
    more = ", …" if len(characters) > SHOWN_MAX else ""
    return ", ".join(f"U+{ord(c):04X} {_name(c)}".rstrip() for c in shown) + more


def _name(character: str) -> str:
    return unicodedata.name(character, "")
