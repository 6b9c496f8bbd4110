"""Foreign text on a terminal: what would move the cursor, hide, or turn the reading direction is shown as text.

Capability names, inputs, outputs, reasons and messages come from others. A right-to-left override can make one
amount look like another; an escape sequence can rewrite what stands above.
"""

from __future__ import annotations

import unicodedata

# Other characters without an ink of their own; Zl and Zp break lines, Cs and Co mean nothing to a reader.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Blank, but letters or marks by category.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u034f\u180b\u180c\u180d\u180f")


def escape(text: str) -> str:
    """`text` on one line, everything invisible as \\n, \\u202e or \\U000e0001. Printable text is unchanged."""
    return text if _is_plain(text) else "".join(_shown(character) for character in text)


def escape_block(text: str) -> str:
    """The same, but line feeds stay: for text that may have several lines."""
    return "\n".join(escape(line) for line in text.split("\n"))


def escape_json(text: str) -> str:
    """Valid JSON text stays valid and means the same: outside strings JSON has nothing to escape."""
    if _is_plain(text):
        return text
    return "".join(
        character if character == "\n" or not _is_hidden(character) else _json_escape(character)
        for character in text
    )


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_hidden(character: str) -> bool:
    if character in _BLANK:
        return True
    is_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return is_selector or unicodedata.category(character) in _HIDDEN


def _shown(character: str) -> str:
    if not _is_hidden(character):
        return character
    named = _NAMED.get(character)
    if named is not None:
        return named
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
