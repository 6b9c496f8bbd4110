"""The development token: never readable by others, never on a port that others reach."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from placet_server.config import ConfigRefused, load_config
from placet_server.rpc.identity.dev_token import DevToken, stored_or_new_token, write_token_file


def write(path: Path, token: str) -> None:
    write_token_file(path, token=token, target="127.0.0.1:1", health_target="127.0.0.1:2")


def test_the_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write(tmp_path / "deep" / "token", "t" * 43)
    finally:
        os.umask(old)
    assert 0o600 == stat.S_IMODE((tmp_path / "deep" / "token").stat().st_mode)
    assert ["token"] == os.listdir(tmp_path / "deep")
    assert "127.0.0.1:1" == json.loads((tmp_path / "deep" / "token").read_text())["target"]


def test_a_token_survives_a_restart(tmp_path: Path) -> None:
    token = stored_or_new_token(tmp_path / "token")
    write(tmp_path / "token", token)
    assert token == stored_or_new_token(tmp_path / "token")
    assert len(token) >= 43


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write(path, "t" * 43)
    path.chmod(0o644)
    assert "t" * 43 != stored_or_new_token(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "token", "t" * 43)
    (tmp_path / "link").symlink_to(tmp_path / "token")
    assert "t" * 43 != stored_or_new_token(tmp_path / "link")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"token": 5}', '{"token": "short"}', '{"token": null}'])
def test_a_broken_file_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    assert len(stored_or_new_token(path)) >= 43


@pytest.mark.parametrize("token", ["", "t" * 42, "t" * 44, "é" * 43])
async def test_no_other_token_is_taken(token: str) -> None:
    assert await DevToken("t" * 43, tenant="dev", subject="developer").establish(token) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])
def test_a_server_with_a_development_token_does_not_listen_to_the_world(host: str) -> None:
    with pytest.raises(ConfigRefused, match="PLACET_IDENTITY_DEV"):
        load_config(ephemeral=True, identity_dev=True, host=host)
    load_config(ephemeral=True, identity_dev=True, host=host, insecure_bind=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"])
def test_loopback_is_recognised(host: str) -> None:
    load_config(ephemeral=True, identity_dev=True, host=host)
