"""A connector that would do what anybody says does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import CommandLine


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--unchecked", "--host", "0.0.0.0"], "loopback"),
        (["--jwks", "nothing.json"], "nothing.json"),
        ([], "whose tokens count"),
        (["--unchecked", "--tls-certificate", "nothing.crt", "--tls-key", "nothing.key"], "nothing."),
        (["--unchecked", "--tls-client-ca", __file__], "certificate and its key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_before_anything_is_served(
    options: list[str], said: str, lone_cli: CommandLine, tmp_path: Path
) -> None:
    ended = lone_cli("connect", "--app", "placet.sample.shop:app", "--port", "0", "--json", *options)
    assert (3, "SERVE_REFUSED") == (ended.code, ended.document["error"]["kind"])
    assert said in ended.document["error"]["message"]
