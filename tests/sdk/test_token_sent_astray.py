"""Where the client connects, and that a token never goes to another server or over an open line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placet.connection import Tls, find_address
from placet.errors import TargetError


def _token_file(folder: Path, target: str = "127.0.0.1:7433", token: str = "secret") -> Path:
    path = folder / ".placet" / "token"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"target": target, "token": token, "health_target": "127.0.0.1:7434"}))
    return path


def test_the_nearest_token_file_upward_is_found(tmp_path: Path) -> None:
    _token_file(tmp_path)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    address = find_address(environment={}, folder=below)
    assert ("127.0.0.1:7433", "secret", None) == (address.target, address.token, address.tls)


def test_a_named_token_file_wins_over_the_nearest(tmp_path: Path) -> None:
    _token_file(tmp_path)
    named = _token_file(tmp_path / "other", "127.0.0.1:1", "other")
    address = find_address(environment={"PLACET_TOKEN_FILE": str(named)}, folder=tmp_path)
    assert ("127.0.0.1:1", "other") == (address.target, address.token)


def test_arguments_win_over_the_environment_and_that_over_files(tmp_path: Path) -> None:
    _token_file(tmp_path)
    environment = {"PLACET_TARGET": "127.0.0.1:2", "PLACET_TOKEN": "two"}
    assert "two" == find_address(environment=environment, folder=tmp_path).token
    address = find_address("127.0.0.1:3", "three", environment=environment, folder=tmp_path)
    assert ("127.0.0.1:3", "three") == (address.target, address.token)


def test_a_files_token_goes_to_that_files_server_alone(tmp_path: Path) -> None:
    _token_file(tmp_path)
    assert "" == find_address("127.0.0.1:9", environment={}, folder=tmp_path).token
    assert "secret" == find_address("127.0.0.1:7433", environment={}, folder=tmp_path).token


@pytest.mark.parametrize(
    "target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/placet.sock", "dns:///localhost:1"]
)
def test_loopback_is_plaintext(target: str) -> None:
    assert find_address(target, "t", environment={}).tls is None


@pytest.mark.parametrize(
    "target", ["placet.example.com:443", "127.example.com:443", "10.0.0.1:1", "dns:///placet.example.com:443"]
)
def test_everywhere_else_is_tls_unless_said_otherwise(target: str) -> None:
    assert find_address(target, "t", environment={}).tls == Tls()
    assert find_address(target, "t", False, environment={}).tls is None


def test_no_server_named_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="run `placet dev` in this folder, set \\$PLACET_TARGET"):
        find_address(environment={}, folder=tmp_path)
    with pytest.raises(TargetError, match="does not exist"):
        find_address(environment={"PLACET_TOKEN_FILE": str(tmp_path / "gone")}, folder=tmp_path)


def test_a_damaged_token_file_is_named(tmp_path: Path) -> None:
    _token_file(tmp_path).write_text("{")
    with pytest.raises(TargetError, match="cannot be read as a token file"):
        find_address(environment={}, folder=tmp_path)
