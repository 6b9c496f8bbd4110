"""Text of others must not move the cursor, hide, or turn the reading direction."""

from __future__ import annotations

import json
import unicodedata

import pytest

from placet_server.cli.escape import escape, escape_block, escape_json
from tests.cli.support import CommandLine

HIDDEN = ("\x1b[2J", "\u202e", "\u2066", "\u200b", "\ufeff", "\x07", "\x9b", "\u2028", "\u00ad", "\U000e0041")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Grüße, 東京", "Grüße, 東京"),
        ("a\tb\nc\r", "a\\tb\\nc\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("pay \u202e00.91", "pay \\u202e00.91"),
        ("\u200b\ufeff", "\\u200b\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\u3164\ufe0f", "\\u3164\\ufe0f"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert shown == escape(text)


def test_blocks_keep_their_lines() -> None:
    assert "a\nb\\r" == escape_block("a\nb\r")


def test_no_control_format_or_separator_character_is_left() -> None:
    """Of the first plane, and of the one with the tags."""
    shown = escape("".join(map(chr, (*range(0x10000), *range(0xE0000, 0xE1000)))))
    assert set() == {unicodedata.category(each) for each in shown} & {
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Cn",
        "Zl",
        "Zp",
    }


def test_escaped_json_means_the_same() -> None:
    value = {text: [text, f"a{text}b"] for text in HIDDEN}
    text = json.dumps(value, ensure_ascii=False, indent=2)
    shown = escape_json(text)
    assert value == json.loads(shown)
    assert not any(hidden in shown for hidden in HIDDEN)


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_foreign_text_in_an_action_is_shown_as_text(is_json: bool, cli: CommandLine) -> None:
    evil = "\x1b]0;owned\x07\u202e"
    text = json.dumps({"to": "bob@example.com", "text": evil})
    called = cli(
        "call", "messages.send", text, "--key", f"evil-{is_json}", "--label", f"note={evil}", "--json"
    )
    action_id = called.document["action"]["action_id"]
    more = ("--json",) if is_json else ()
    shown = [
        cli("show", action_id, "--events", *more),
        cli("ls", "--capability", "messages.send", *more),
        cli("watch", action_id, *more),
        cli("cancel", action_id, "--reason", evil, *more),
        cli("call", f"no.{evil}", *more),
    ]
    assert [0, 0, 0, 0] == [ended.code for ended in shown[:4]]
    for ended in shown:
        assert not set(evil) & set(ended.out + ended.err) & {"\x1b", "\x07", "\u202e"}
    assert "\\u202e" in shown[0].out
