"""A target is dialled where it may be, and whatever answers there costs a bounded time and a bounded memory."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from placet_server.outbound import http, lookup
from placet_server.outbound.address import HostRules
from placet_server.outbound.http import Answer, HttpSender, SendFailed, UrlRefused, url_of
from tests.core.receiver import TLS, Receiver, open_receiver, says, sends
from tests.rpc.keys import Authority

MIB = 2**20


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


class Names:
    """Answers of name servers, each used up in turn, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[list[str]] = []
        self.asked = 0

    def getaddrinfo(self, name: str, port: None, **_: object) -> list[tuple[object, ...]]:
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(0, 0, 0, "", (address, 0)) for address in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    given = Names()
    monkeypatch.setattr(socket, "getaddrinfo", given.getaddrinfo)
    return given


async def post(
    url: str, *hosts: str, seconds: float = 5.0, tls: ssl.SSLContext = TLS, is_insecure: bool = False
) -> Answer:
    rules = HostRules(hosts or ("loopback",), settings="PLACET_CALLBACK", is_insecure=is_insecure)
    return await HttpSender(rules, tls).post(url_of(url), [("x", "y")], b"{}", seconds=seconds)


async def test_a_redirect_is_an_answer_and_nobody_goes_there(receiver: Receiver) -> None:
    async with open_receiver() as inside:
        for place in (inside.url, "http://169.254.169.254/latest/meta-data/"):
            receiver.answers = [says(307, f"Location: {place}")]
            assert 307 == (await post(receiver.url)).status
        assert [] == inside.received


async def test_no_proxy_of_the_environment_is_asked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert 204 == (await post(receiver.url)).status
        assert [] == proxy.received


async def test_what_is_dialled_is_what_was_checked_though_the_name_means_another_host_now(
    receiver: Receiver, names: Names
) -> None:
    names.answers = [["127.0.0.1"], ["169.254.169.254"]]
    url = f"http://desk.example:{receiver.port}/told"
    assert 204 == (await post(url)).status
    assert 1 == names.asked
    assert f"desk.example:{receiver.port}" == receiver.received[0].headers["host"]
    with pytest.raises(SendFailed, match="may not be dialled") as caught:
        await post(url)
    assert caught.value.not_sent


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "fd00::1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
    ],
)
async def test_one_address_inside_is_enough_to_refuse_a_public_name(names: Names, address: str) -> None:
    names.answers = [["93.184.216.34", address]]
    with pytest.raises(SendFailed, match="dialled"):
        await post("https://desk.example/", "public")


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "017700000001"])
async def test_odd_forms_of_an_address_are_checked_as_what_they_are(host: str) -> None:
    with pytest.raises(SendFailed, match=r"dialled|looked up"):
        await post(f"https://{host}/", "public")


@pytest.mark.parametrize("host", ["fd00:ec2::254", "100.100.100.200", "168.63.129.16"])
async def test_metadata_of_clouds_is_never_dialled(host: str) -> None:
    written = f"[{host}]" if ":" in host else host
    with pytest.raises(SendFailed, match="may not be dialled"):
        await post(f"https://{written}/", "public", "private", "100.64.0.0/10", "fd00::/8")


async def test_plaintext_does_not_leave_this_machine(names: Names) -> None:
    names.answers = [["93.184.216.34"]]
    with pytest.raises(SendFailed, match="plaintext"):
        await post("http://desk.example/", "public")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://desk.example/",
        "https://user:secret@desk.example/",
        "https://desk.example/#part",
        "https://desk.example/a b",
        "https://desk.example/\r\nHost: other",
        "https://desk.example\\@other/",
        "https://désk.example/",
        "https://desk.example/" + "a" * 2048,
        "//desk.example/",
        "unix:/tmp/socket",
        "https://",
    ],
)
def test_what_is_no_plain_url_is_none(url: str) -> None:
    with pytest.raises(UrlRefused):
        url_of(url)


async def test_huge_and_endless_responses_are_cut_when_their_head_has_come(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS_MAX", 0.2)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    receiver.answers = [
        sends(head % 2**40, for_ever=b"x" * MIB),
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", for_ever=b"1\r\nx\r\n"),
        sends(head % 5, b"ab"),
        sends(head % 5, b"ab", for_ever=b"c", pause_seconds=10),
    ]
    for _ in range(4):
        assert 200 == (await post(receiver.url, seconds=20.0)).status


async def test_heads_that_do_not_end_are_no_answer(receiver: Receiver) -> None:
    receiver.answers = [
        sends(b"HTTP/1.1 200 OK\r\n", for_ever=b"X: y\r\n", pause_seconds=0.01),
        sends(b"HTTP/1.1 200 OK\r\n", for_ever=b"X: " + b"y" * 65536),
        sends(for_ever=b"HTTP/1.1 100 Continue\r\n\r\n"),
        sends(b"SSH-2.0-OpenSSH_9.6\r\n"),
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        sends(),
    ]
    for _ in range(6):
        with pytest.raises(SendFailed, match="no answer"):
            await post(receiver.url, seconds=0.3)


async def test_a_name_that_nobody_answers_for_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    held = asyncio.get_running_loop()
    release = asyncio.Event()

    def getaddrinfo(name: str, port: None, **_: object) -> list[tuple[object, ...]]:
        if name.startswith("silent"):
            asyncio.run_coroutine_threadsafe(release.wait(), held).result()
        return [(0, 0, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    lookups = lookup.Lookups()
    silent = [asyncio.ensure_future(lookups.find(f"silent{number % 63}")) for number in range(200)]
    # One turn, in which all of them begin; so below.
    await asyncio.sleep(0)
    assert "127.0.0.1" == str((await lookups.find("desk"))[0])
    late = asyncio.ensure_future(lookups.find("silent_too"))
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many"):
        await lookups.find("another")
    release.set()
    await asyncio.gather(*silent, late)
    assert "127.0.0.1" == str((await lookups.find("another"))[0])


def certified(authority: Authority, folder: Path) -> ssl.SSLContext:
    context, server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authority.server()
    chain, key = folder / "chain", folder / "key"
    chain.write_bytes(server.certificate)
    key.write_bytes(server.key)
    context.load_cert_chain(chain, key)
    return context


async def test_certificate_is_for_the_name_not_for_the_address(names: Names, tmp_path: Path) -> None:
    authority = Authority()
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    names.answers = [["127.0.0.1"]]
    async with open_receiver(certified(authority, tmp_path)) as receiver:
        assert 204 == (await post(f"https://localhost:{receiver.port}/", tls=trusting)).status
        for name, tls in (("desk.example", trusting), ("127.0.0.1", trusting), ("localhost", TLS)):
            with pytest.raises(SendFailed, match="cannot be reached"):
                await post(f"https://{name}:{receiver.port}/", tls=tls)
        assert 1 == len(receiver.received)
