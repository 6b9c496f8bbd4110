"""Whose roles count for a decision: the operator's word, and no answer is none."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from placet_server.config import ConfigRefused, load_config
from placet_server.core.decision.authority import Authority, FileAuthority, TokenAuthority, people_of
from placet_server.core.decision.authority_http import HttpAuthority
from placet_server.core.decision.voter import voter_of
from placet_server.model.approval import Voter
from placet_server.model.caller import Caller, CallerKind, Delegate, Login
from placet_server.model.identity_errors import AuthorityUnavailable
from placet_server.settings_file import LOOK_SECONDS, SettingsFile, SettingsFileRefused

ANNA = Caller(tenant="acme", subject="anna", roles=("boss",), groups=("all",))
FILE = """
[acme.anna]
roles = ["finance", "finance"]
[acme."ben@example.org"]
groups = ["cfo"]
"""


@pytest.fixture
def elapse(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of settings files."""
    now = [0.0]
    monkeypatch.setattr("placet_server.settings_file.monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


async def test_a_token_speaks_for_itself() -> None:
    assert Authority(("boss",), ("all",)) == await TokenAuthority().of(ANNA)


async def test_a_voter_has_the_roles_that_count_and_the_login_that_the_token_says(tmp_path: Path) -> None:
    path = tmp_path / "people.toml"
    path.write_text(FILE)
    source = FileAuthority(SettingsFile(path, people_of))
    login = Login(strength="mfa", methods=("otp",), time_us=5)
    voter = Voter(
        subject="anna",
        kind=CallerKind.USER,
        roles=("finance",),
        delegated=True,
        login_strength="mfa",
        login_methods=("otp",),
        login_time_us=5,
    )
    assert voter == await voter_of(replace(ANNA, login=login, delegation=(Delegate(subject="bot"),)), source)
    plain = Voter(subject="anna", kind=CallerKind.USER, roles=("finance",))
    assert plain == await voter_of(ANNA, source)


async def test_a_file_says_who_may_whatever_the_token_says(tmp_path: Path) -> None:
    path = tmp_path / "people.toml"
    path.write_text(FILE)
    source = FileAuthority(SettingsFile(path, people_of))
    assert Authority(roles=("finance",)) == await source.of(ANNA)
    assert Authority(groups=("cfo",)) == await source.of(replace(ANNA, subject="ben@example.org"))
    assert Authority() == await source.of(replace(ANNA, subject="eve"))
    assert Authority() == await source.of(replace(ANNA, tenant="evil"))


async def test_a_file_is_read_again_when_it_changes_and_half_of_one_changes_nothing(
    tmp_path: Path, elapse: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "people.toml"
    path.write_text(FILE)
    source = FileAuthority(SettingsFile(path, people_of))
    path.write_text('[acme.anna]\nroles = ["fin')
    for _ in range(3):
        elapse(LOOK_SECONDS)
        assert Authority(roles=("finance",)) == await source.of(ANNA)
    assert 1 == caplog.text.count("stays in force")
    # Good TOML, but not all that somebody is about to write.
    path.write_text("")
    elapse(LOOK_SECONDS)
    assert Authority(roles=("finance",)) == await source.of(ANNA)
    path.unlink()
    elapse(LOOK_SECONDS)
    assert Authority(roles=("finance",)) == await source.of(ANNA)
    path.write_text('[acme.anna]\nroles = ["clerk"]')
    for _ in range(2):
        elapse(LOOK_SECONDS / 2)
        assert Authority(roles=("finance",)) == await source.of(ANNA)
    elapse(LOOK_SECONDS)
    assert Authority(roles=("clerk",)) == await source.of(ANNA)
    # The same size and time, and another file.
    status = path.stat()
    (tmp_path / "new").write_text('[acme.anna]\nroles = ["guest"]')
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "new").replace(path)
    elapse(LOOK_SECONDS)
    assert Authority(roles=("clerk",)) == await source.of(ANNA)
    elapse(LOOK_SECONDS)
    assert Authority(roles=("guest",)) == await source.of(ANNA)


@pytest.mark.parametrize(
    "content",
    [
        "acme = 1",
        "[acme]\nanna = 1",
        '[acme.anna]\nrole = ["x"]',
        '[acme.anna]\nroles = "x"',
        "[acme.anna]\nroles = [1]",
        '[acme.anna]\nroles = [""]',
        f'[acme.anna]\nroles = ["{"x" * 129}"]',
        f"[acme.anna]\nroles = {[str(n) for n in range(65)]}",
        "[acme",
        "\udcff",
    ],
)
def test_a_server_does_not_start_with_a_file_that_means_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "people.toml"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(SettingsFileRefused, match=r"people\.toml: "):
        SettingsFile(path, people_of)


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileRefused, match="No such file"):
        SettingsFile(tmp_path / "gone", people_of)
    (tmp_path / "big").write_text("#" * (4 * 2**20 + 1))
    with pytest.raises(SettingsFileRefused, match="more than"):
        SettingsFile(tmp_path / "big", people_of)


def _same(answer: bytes | None) -> bytes | None:
    return answer


class Service:
    """Answers by hand, so that it may answer anything."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers = b""
        self.answer: Callable[[], bytes | None] = lambda: answer_of({"roles": ["finance"]})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                )
                self.headers = head
                self.asked.append(json.loads(await reader.readexactly(length)))
                answer = self.answer()
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            # The loop is not told of the last connections' ends.
            return
        finally:
            writer.close()


def answer_of(document: object, status: str = "200 OK", headers: str = "") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


@asynccontextmanager
async def asking(
    service: Service, *, keep_seconds: float = 0.0, token_file: Path | None = None
) -> AsyncIterator[HttpAuthority]:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source = HttpAuthority(
        f"http://127.0.0.1:{port}/authority", keep_seconds=keep_seconds, token_file=token_file
    )
    try:
        yield source
    finally:
        await source.close()
        server.close()


async def test_a_service_says_who_may(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    service = Service()
    async with asking(service, keep_seconds=3600, token_file=tmp_path / "token") as source:
        assert Authority(roles=("finance",)) == await source.of(ANNA)
        assert Authority(roles=("finance",)) == await source.of(ANNA)
        service.answer = lambda: answer_of(b"", "404 Not Found")
        assert Authority() == await source.of(replace(ANNA, subject="eve"))
    assert [{"tenant": "acme", "subject": name, "kind": "USER"} for name in ("anna", "eve")] == service.asked
    assert b"authorization: bearer s3cret\r\n" in service.headers.lower().replace(b"S3", b"s3")


async def test_no_answer_is_no_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placet_server.core.decision.authority_http.ANSWER_SECONDS", 0.5)
    service = Service()
    answers: list[bytes | None] = [
        answer_of({"roles": ["x"]}, "500 Oops"),
        answer_of(b"", "302 Found", "location: http://127.0.0.1:1/\r\n"),
        answer_of(b"not json"),
        answer_of([]),
        answer_of({"roles": "x"}),
        answer_of({"roles": [], "admin": True}),
        answer_of(b"[" * 60_000),
        answer_of(b" " * (64 * 1024 + 1)),
        None,
    ]
    async with asking(service, keep_seconds=3600) as source:
        for answer in answers:
            service.answer = partial(_same, answer)
            with pytest.raises(AuthorityUnavailable):
                await source.of(ANNA)
        service.answer = lambda: answer_of({"groups": ["cfo"]})
        assert Authority(groups=("cfo",)) == await source.of(ANNA)
    gone = HttpAuthority("http://127.0.0.1:1/", keep_seconds=0)
    with pytest.raises(AuthorityUnavailable):
        await gone.of(ANNA)
    await gone.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"authority_file": Path("x"), "authority_url": "https://a"},
        {"authority_url": "ftp://a"},
        {"authority_token_file": Path("x")},
    ],
)
def test_an_authority_that_cannot_be_asked_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused, match="PLACET_AUTHORITY"):
        load_config(ephemeral=True, identity_dev=True, **fields)
