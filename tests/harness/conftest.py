from __future__ import annotations

import pytest

from placet.testing.model_servers import KEY
from tests.harness.conversation import KEY_VARIABLE


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The scripted servers' key, where the credential `test` is."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return KEY
