"""Whoever follows the README or the tutorial gets what they promise."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.snippets import Desk

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(prefix="placet-docs-") as folder:
        # Postgres, which never runs as root, must be able to enter.
        Path(folder).chmod(0o755)
        desk = Desk(Path(folder))
        try:
            yield desk
        finally:
            desk.close()


@pytest.mark.parametrize("document", ["README.md", "docs/first-tool.md"])
def test_every_command_prints_what_the_document_says(desk: Desk, document: str) -> None:
    desk.follow(document)
