"""The development token: never readable by others, never on a port that others reach."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from placet_server.config import Config, ConfigRefused, load_config
from placet_server.model.caller import Login
from placet_server.rpc.identity.dev_token import (
    DevTokens,
    dev_logins,
    stored_or_new_token,
    write_token_file,
    write_token_files,
)


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
async def test_no_other_token_is_taken(tmp_path: Path, token: str) -> None:
    write(tmp_path / "token", "t" * 43)
    logins = dev_logins(config_of(tmp_path))
    assert ["t" * 43] == [login.token for login in logins]
    assert await DevTokens(logins).establish(token) is None


def config_of(folder: Path, **fields: Any) -> Config:
    return load_config(ephemeral=True, identity_dev=True, token_file=folder / "token", **fields)


async def test_each_person_of_a_development_server_has_a_token_and_roles_of_its_own(tmp_path: Path) -> None:
    config = config_of(tmp_path, dev_people=("anna:finance+approver", "ben"))
    logins = dev_logins(config)
    write_token_files(logins, target="127.0.0.1:1", health_target="127.0.0.1:2")
    assert ["token", "token.anna", "token.ben"] == sorted(os.listdir(tmp_path))
    assert {0o600} == {stat.S_IMODE(login.path.stat().st_mode) for login in logins}
    again = DevTokens(dev_logins(config))
    found = [await again.establish(login.token) for login in logins]
    callers = [each.caller for each in found if each is not None]
    assert [("developer", ()), ("anna", ("approver", "finance")), ("ben", ())] == [
        (caller.subject, caller.roles) for caller in callers
    ]
    assert 3 == len({login.token for login in logins})
    assert all(caller.is_person and "dev" == (caller.login or Login()).strength for caller in callers)


@pytest.mark.parametrize(
    "people", ["Anna", "anna:", "anna:a:b", "an/na", "../anna", "anna,anna", "developer", "anna:a+"]
)
def test_a_person_that_could_not_be_told_apart_is_refused(people: str) -> None:
    with pytest.raises(ConfigRefused, match="PLACET_DEV_PEOPLE"):
        load_config(ephemeral=True, identity_dev=True, dev_people=people)


def test_people_of_development_are_nobody_elsewhere() -> None:
    with pytest.raises(ConfigRefused, match="PLACET_DEV_PEOPLE needs"):
        load_config(ephemeral=True, jwt_issuer="i", jwt_audience="a", jwt_jwks_url="u", dev_people="anna")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])
def test_a_server_with_a_development_token_does_not_listen_to_the_world(host: str) -> None:
    with pytest.raises(ConfigRefused, match="PLACET_IDENTITY_DEV"):
        load_config(ephemeral=True, identity_dev=True, host=host)
    load_config(ephemeral=True, identity_dev=True, host=host, insecure_bind=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"])
def test_loopback_is_recognised(host: str) -> None:
    load_config(ephemeral=True, identity_dev=True, host=host)
