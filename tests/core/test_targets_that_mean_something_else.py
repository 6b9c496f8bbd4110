"""The file that says who is told: every mistake is told at start, none takes effect later."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from placet_server.callback_setup import read_callbacks
from placet_server.config import Config, ConfigRefused, load_config
from placet_server.core.publication.callback import Callbacks
from placet_server.loops.target_reader import TargetReader
from placet_server.model.callback import Target
from placet_server.outbound.address import HostRules
from placet_server.outbound.target_file import TargetFile, TargetsRefused

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
GOOD = """
[[targets]]
tenant = "acme"
name = "desk"
url = "https://desk.example/told?x=1"
types = ["dev.placet.approval.*"]
secrets = [{ file = "new" }, { env = "OLD_SECRET" }]
headers = { X-Team = "payments", authorization = { file = "token" } }
"""
DESK = Target(
    tenant="acme",
    name="desk",
    url="https://desk.example/told?x=1",
    types=("dev.placet.approval.*",),
    secrets=(SECRET, OTHER),
    headers=(("x-team", "payments"), ("authorization", "Bearer t")),
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "new").write_text(SECRET + "\n")
    (tmp_path / "token").write_text("Bearer t\n")
    monkeypatch.setenv("OLD_SECRET", OTHER)
    return tmp_path


def target_file(folder: Path, text: str, *hosts: str) -> TargetFile:
    (folder / "callbacks.toml").write_text(text)
    return TargetFile(folder / "callbacks.toml", HostRules(hosts or ("public",), settings="PLACET_CALLBACK"))


def test_a_file_says_who_is_told_and_shows_no_secret(files: Path) -> None:
    (found,) = target_file(files, GOOD).read()
    assert DESK == found
    assert SECRET not in repr(found)
    assert "Bearer" not in repr(found)
    assert () == target_file(files, "").read()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("https://desk.example", "http://93.184.216.34"), "plaintext is refused"),
        (("desk.example", "127.0.0.1"), "not among the hosts"),
        (("desk.example", "169.254.169.254"), "may not be dialled"),
        (("desk.example", "a:b@desk.example"), "a URL is"),
        (('"acme"', '"-"'), "tenant"),
        (('"desk"', '"Desk 1"'), "name"),
        (("approval.*", "aproval.*"), "'dev.placet.aproval.*'"),
        (('["dev.placet.approval.*"]', "[]"), "types"),
        (('{ file = "new" }', '{ file = "gone" }'), "gone cannot be read"),
        (('"OLD_SECRET"', '"NO_SECRET"'), "has no NO_SECRET"),
        (('{ file = "new" }', '{ file = "token" }'), "whsec_"),
        (('{ file = "new" }', '{ file = "new", env = "OLD_SECRET" }'), "one of file and env"),
        (('{ file = "new" }', f'"{SECRET}"'), "secrets"),
        (("X-Team", "Host"), "'host'"),
        (("X-Team", "webhook-id"), "'webhook-id'"),
        (("X-Team", '"a b"'), "'a b'"),
        (("payments", "a\\r\\nb: c"), "visible ASCII"),
        (("secrets", "secret"), "secret"),
        (("[[targets]]", "[[targets]"), "no TOML"),
        (("[[targets]]", GOOD + "[[targets]]"), "there 2 times"),
    ],
)
def test_each_mistake_is_told_and_no_secret_with_it(
    files: Path, change: tuple[str, str], problem: str
) -> None:
    with pytest.raises(TargetsRefused) as caught:
        target_file(files, GOOD.replace(*change)).read()
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


def test_all_mistakes_are_told_together(files: Path) -> None:
    with pytest.raises(TargetsRefused) as caught:
        target_file(files, GOOD.replace("desk.example", "10.0.0.1").replace("approval.*", "x")).read()
    assert 2 == len(caught.value.problems)
    with pytest.raises(TargetsRefused, match="cannot be read"):
        TargetFile(files / "gone.toml", HostRules(())).read()


async def test_what_is_refused_while_it_runs_changes_nothing_and_is_told_once(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = target_file(files, GOOD)
    callbacks = Callbacks(file.read())
    reader = TargetReader(file, callbacks)

    async def seen(looks: int = 2) -> list[Target]:
        for _ in range(looks):
            await reader.step()
        return list(callbacks.targets.values())

    assert [DESK] == await seen()
    (files / "callbacks.toml").write_text(GOOD.replace("https", "ftp"))
    assert [[DESK], [DESK], True] == [await seen(), await seen(), reader.is_refused]
    # Good TOML, but not all that somebody is about to write.
    (files / "callbacks.toml").write_text("")
    assert [DESK] == await seen(1)
    assert 1 == caplog.text.count("stay as they were")
    (files / "callbacks.toml").write_text(GOOD)
    assert [[DESK], False] == [await seen(), reader.is_refused]
    # A secret is rotated by writing its file.
    (files / "new").write_text(OTHER)
    assert [(OTHER, OTHER)] == [target.secrets for target in await seen()]
    (files / "new").unlink()
    assert [(OTHER, OTHER)] == [target.secrets for target in await seen()]
    (files / "callbacks.toml").write_text("")
    assert [] == await seen()


async def test_a_server_does_not_start_with_what_is_wrong(files: Path) -> None:
    def config(**members: object) -> Config:
        return load_config(ephemeral=True, identity_dev=True, **members)

    target_file(files, GOOD)
    found = await read_callbacks(config(callback_file=files / "callbacks.toml", callback_attempts=3))
    assert ([DESK], 3) == (list(found.callbacks.targets.values()), found.callbacks.attempts_max)
    target_file(files, GOOD.replace("desk.example", "10.0.0.1"))
    with pytest.raises(ConfigRefused, match=r"PLACET_CALLBACK_FILE: .*not among the hosts"):
        await read_callbacks(config(callback_file=files / "callbacks.toml"))
    with pytest.raises(ConfigRefused, match="PLACET_CALLBACK_HOSTS"):
        await read_callbacks(config(callback_hosts="http://desk"))
    (files / "ca").write_text("no certificate")
    target_file(files, GOOD)
    with pytest.raises(ConfigRefused, match="PLACET_CALLBACK_TLS_CA_FILE"):
        await read_callbacks(
            config(callback_file=files / "callbacks.toml", callback_tls_ca_file=files / "ca")
        )
