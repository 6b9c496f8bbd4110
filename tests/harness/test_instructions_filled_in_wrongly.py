"""Arguments become text of the instructions, and nothing else."""

from __future__ import annotations

import pytest

from placet_server.harness.instruction import RENDERED_BYTES_MAX, InstructionRefused, render
from placet_server.model.agent import arguments_in


def test_an_argument_stands_in_its_places_as_it_is() -> None:
    text = render("Serve {{name}}, {{ name }}.", {"name": "{{other}} \\1 {x}", "unused": "u"})
    assert "Serve {{other}} \\1 {x}, {{other}} \\1 {x}." == text


def test_braces_that_name_nothing_stay() -> None:
    template = '{"a": {{}}, {{ 1 }}, {{a-b}}, {name}}'
    assert template == render(template, {})
    assert frozenset() == arguments_in(template)


def test_a_missing_argument_refuses_the_run() -> None:
    with pytest.raises(InstructionRefused, match="'city'"):
        render("{{name}} of {{city}}", {"name": "x"})


def test_what_becomes_too_long_is_refused() -> None:
    with pytest.raises(InstructionRefused):
        render("{{a}}{{a}}", {"a": "é" * (RENDERED_BYTES_MAX // 4 + 1)})
