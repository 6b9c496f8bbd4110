"""Who may admit manifests must not choose freely what the server dials."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from placet_server.core.kernel import Kernel
from placet_server.model.errors import ManifestRefused
from placet_server.outbound import lookup
from placet_server.outbound.address import HostRefused, HostRules
from tests.connector.rogue import Rogue, admit

NAMES = {
    "here": "127.0.0.1",
    "pay.svc": "10.1.2.3",
    "moved": "169.254.169.254",
    "far.example": "93.184.216.34",
    "sly": "::ffff:169.254.169.254",
    "inner": "fd00::7",
}


def rules(*hosts: str, is_insecure: bool = False) -> HostRules:
    return HostRules(hosts, is_insecure=is_insecure)


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_addresses", lambda name: (ip_address(NAMES[name]),))


@pytest.mark.parametrize(
    ("hosts", "target"),
    [
        (("loopback",), "127.0.0.1:7435"),
        (("loopback",), "[::1]:7435"),
        (("loopback",), "here:7435"),
        (("private",), "10.1.2.3:7435"),
        (("private",), "inner:7435"),
        (("10.1.0.0/16",), "pay.svc:7435"),
        (("10.1.2.3",), "10.1.2.3:7435"),
        (("*.svc",), "pay.svc:7435"),
        (("public",), "far.example:443"),
        (("far.example",), "FAR.example:443"),
        (("*",), "pay.svc:443"),
        (("public",), "[64:ff9b::808:808]:443"),
        (("loopback",), "[::ffff:127.0.0.1]:7435"),
    ],
)
async def test_what_is_listed_is_dialled(hosts: tuple[str, ...], target: str) -> None:
    assert await rules(*hosts).resolve(target, plaintext=False)


@pytest.mark.parametrize(
    ("hosts", "target"),
    [
        ((), "127.0.0.1:7435"),
        (("loopback",), "10.1.2.3:7435"),
        (("loopback",), "pay.svc:7435"),
        (("private",), "127.0.0.1:7435"),
        (("private",), "far.example:443"),
        (("private", "public", "*"), "169.254.169.254:80"),
        (("*",), "moved:80"),
        (("*",), "sly:80"),
        (("*",), "0.0.0.0:80"),
        (("*",), "[fe80::1]:80"),
        (("*",), "[ff02::1]:80"),
        (("10.1.0.0/16",), "10.2.0.1:80"),
        (("public",), "[64:ff9b::a00:1]:80"),
        (("public", "*"), "[64:ff9b::a9fe:a9fe]:80"),
        (("64:ff9b::/96",), "[64:ff9b::a9fe:a9fe]:80"),
        (("2002::/16",), "[2002:a9fe:a9fe::1]:80"),
        (("public",), "[2002:a00:1::1]:80"),
        (("public",), "[::10.0.0.1]:80"),
        (("public", "*"), "[::169.254.169.254]:80"),
        (("public",), "[::ffff:0:10.0.0.1]:80"),
        (("public",), "[fec0::1]:80"),
        (("*.svc",), "svc:80"),
        (("*",), "unix:/tmp/socket"),
        (("*",), "dns:///here:80"),
        (("*",), "ipv4:127.0.0.1:80"),
        (("*",), "here"),
        (("*",), "here:0"),
        (("*",), "here:99999"),
        (("*",), "a@here:80"),
        (("*",), "here:80/x"),
    ],
)
async def test_what_is_not_listed_or_is_no_host_is_refused(hosts: tuple[str, ...], target: str) -> None:
    with pytest.raises(HostRefused):
        await rules(*hosts).resolve(target, plaintext=False)


async def test_plaintext_does_not_leave_this_machine_unless_allowed() -> None:
    with pytest.raises(HostRefused):
        await rules("private").resolve("pay.svc:7435", plaintext=True)
    assert await rules("private", is_insecure=True).resolve("pay.svc:7435", plaintext=True)
    assert await rules("loopback").resolve("here:1", plaintext=True)


@pytest.mark.parametrize("word", ["http://here", "10.0.0.0/33", "a b", "*.*"])
def test_words_that_mean_nothing_are_not_passed_over(word: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        rules(word)


async def test_manifest_with_such_an_address_is_refused(kernel: Kernel, rogue: Rogue) -> None:
    manifest: Any = rogue.manifest()
    manifest.connector.target = "10.1.2.3:7435"
    with pytest.raises(ManifestRefused) as caught:
        await admit(kernel, manifest)
    assert ["connector_host_refused"] == [violation.rule for violation in caught.value.violations]
