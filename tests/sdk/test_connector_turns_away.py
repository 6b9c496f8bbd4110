"""Who is not believed, or comes too late, or too often: refused before `accepted`, and nothing is begun."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.x509.oid import NameOID

from placet import Tls
from placet.connector import signing_key
from placet.connector.option import ServeOptions, settings_of
from placet.connector.server import ServeError
from placet.connector.signing_key import KeysUnavailable, SigningKeys
from placet.connector.token import SignedTokens
from placet.v1 import action_pb2
from placet.v1 import connector_service_pb2 as pb
from placet.v1.connector_service_pb2_grpc import ConnectorServiceStub
from tests.rpc.keys import Authority
from tests.sdk.dialler import Signer, dialled
from tests.sdk.errand import Errands

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def _tokens(signer: Signer, issuer: str = "") -> SignedTokens:
    async def read() -> bytes:
        return signer.jwks()

    return SignedTokens("desk", SigningKeys(read), issuer)


async def test_what_cannot_be_begun_is_not_accepted() -> None:
    wrong: list[tuple[dict[str, Any], grpc.StatusCode]] = [
        ({"capability": "desk.nothing"}, grpc.StatusCode.NOT_FOUND),
        ({"version": "2"}, grpc.StatusCode.NOT_FOUND),
        # What was compared with another boot's contract was not compared with this one's.
        ({"boot_id": str(uuid.uuid4())}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"seconds": 0}, grpc.StatusCode.DEADLINE_EXCEEDED),
        ({"seconds": 1e12}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"seconds": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"action_id": "me"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"attempt": 0}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"provider_cursor_json": "{"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"provider_cursor_json": "[" * 5000}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"provider_cursor_json": f'"{"x" * 70_000}"'}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"value": "x" * (3 * 1024 * 1024)}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"value": "x" * (5 * 1024 * 1024)}, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ]
    errands = Errands()
    async with dialled(errands.app) as dialler:
        for said, code in wrong:
            start = dialler.start(**({"capability": "desk.read"} | said))
            assert code == await dialler.refused(start), str(said)[:80]
        assert [] == dialler.connector.table.running
    assert not errands.entered.is_set()


async def test_no_more_run_at_once_than_it_said() -> None:
    errands = Errands()
    async with dialled(errands.app, concurrency_max=2) as dialler:
        running = [await dialler.begun("desk.read"), await dialler.begun("desk.tell", {"text": "x"})]
        assert grpc.StatusCode.RESOURCE_EXHAUSTED == await dialler.refused(dialler.start("desk.read"))
        errands.thread_open.set()
        await running[1].settled()
        errands.open.set()
        await (await dialler.begun("desk.read")).settled()
        await running[0].settled()


async def test_who_drains_finishes_what_runs_and_takes_nothing_new() -> None:
    errands = Errands()
    async with dialled(errands.app, drain_seconds=20.0) as dialler:
        start = dialler.start("desk.read")
        stream = await dialler.invoke(start)
        await stream.proceed()
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(dialler.connector.drain())
            await asyncio.sleep(0)
            assert (await dialler.stub.Describe(pb.DescribeRequest())).draining
            assert grpc.StatusCode.UNAVAILABLE == await dialler.refused(dialler.start("desk.read"))
            # What runs is no news.
            again = await dialler.invoke(start)
            await again.proceed()
            assert not draining.done()
            errands.open.set()
        await again.settled()
        assert "result" == (await stream.next())[0]


async def test_a_start_that_is_signed_for_it_is_believed() -> None:
    errands, signer = Errands(), Signer()
    errands.open.set()
    async with dialled(errands.app, _tokens(signer, "placet")) as dialler:
        start = dialler.start("desk.read", {"text": "ü"})
        start.invocation_token = signer.token(start)
        stream = await dialler.invoke(start)
        await stream.proceed()
        await stream.settled()


async def test_a_token_for_anything_else_is_refused() -> None:
    now = int(time.time())
    wrong: list[dict[str, Any]] = [
        {"aud": "placet-connector:other"},
        {"aud": "desk"},
        {"iss": "somebody"},
        {"sub": "0199b0c0-0000-7000-8000-000000000009"},
        {"tenant": "other"},
        {"attempt": 2},
        {"attempt": "1"},
        {"capability": "desk.pay"},
        {"version": "2"},
        {"input_sha256": "0" * 64},
        {"exp": now - 60},
        {"exp": None},
        {"iat": now + 600},
        {"sub": None},
        {"input_sha256": None},
    ]
    errands, signer = Errands(), Signer()
    async with dialled(errands.app, _tokens(signer, "placet")) as dialler:
        start = dialler.start("desk.read", {"text": "x"})
        for changes in wrong:
            start.invocation_token = signer.token(start, **changes)
            assert UNAUTHENTICATED == await dialler.refused(start), changes
            start.invocation_token = signer.token(start, "lookup", **changes)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await dialler.look_up(start)
            assert UNAUTHENTICATED == caught.value.code(), changes
    assert not errands.entered.is_set()


async def test_a_token_for_a_lookup_begins_nothing_and_one_for_an_attempt_asks_nothing() -> None:
    errands, signer = Errands(), Signer()
    async with dialled(errands.app, _tokens(signer)) as dialler:
        start = dialler.start("desk.read", {"text": "x"})
        start.invocation_token = signer.token(start, "lookup")
        assert "not_known" == (await dialler.look_up(start)).WhichOneof("finding")
        assert UNAUTHENTICATED == await dialler.refused(start)
        for use in ("invoke", "", None):
            start.invocation_token = signer.token(start, use)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await dialler.look_up(start)
            assert UNAUTHENTICATED == caught.value.code(), use
    assert not errands.entered.is_set()


async def test_a_tenant_that_it_does_not_work_for_is_refused() -> None:
    errands, signer = Errands(), Signer()
    errands.open.set()
    async with dialled(errands.app, _tokens(signer), tenants=frozenset({"acme"})) as dialler:
        for tenant, is_known in (("acme", True), ("other", False)):
            start = dialler.start("desk.read", caller=action_pb2.Caller(tenant=tenant, subject="ada"))
            start.invocation_token = signer.token(start)
            if is_known:
                stream = await dialler.invoke(start)
                await stream.proceed()
                await stream.settled()
            else:
                assert UNAUTHENTICATED == await dialler.refused(start)


async def test_a_forged_token_is_refused() -> None:
    errands, signer, forger, stranger = Errands(), Signer(), Signer(), Signer("k2")
    async with dialled(errands.app, _tokens(signer)) as dialler:
        start = dialler.start("desk.read", {"text": "x"})
        good = signer.token(start)
        header, claims, signature = good.split(".")
        unsigned = "eyJhbGciOiJub25lIiwia2lkIjoiazEifQ"
        for token in (
            "",
            "x",
            f"{unsigned}.{claims}.",
            f"{header}.{claims}.",
            f"{header}.{claims}.{signature[:-4]}AAAA",
        ):
            start.invocation_token = token
            assert UNAUTHENTICATED == await dialler.refused(start)
        for other in (forger, stranger):
            start.invocation_token = other.token(start)
            assert UNAUTHENTICATED == await dialler.refused(start)


async def test_keys_are_read_again_for_a_new_one_but_not_for_everyone_who_makes_one_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = Signer("old"), Signer("new")
    read: list[bytes | None] = [None, old.jwks(), new.jwks()]
    reads = 0
    now = 0.0
    monkeypatch.setattr(signing_key, "monotonic", lambda: now)

    async def source() -> bytes:
        nonlocal reads
        content = read[min(reads, 2)]
        reads += 1
        if content is None:
            raise KeysUnavailable("away")
        return content

    keys = SigningKeys(source)
    with pytest.raises(KeysUnavailable):
        await keys.key("old")
    with pytest.raises(KeysUnavailable):
        await keys.key("old")
    now = 2.0
    assert await keys.key("old") is not None
    assert [None, None] == [await keys.key("new"), await keys.key("made up")]
    assert 2 == reads
    now = 20.0
    assert await keys.key("new") is not None


@pytest.mark.parametrize(
    ("host", "options", "said"),
    [
        ("0.0.0.0", {"unchecked": True}, "not loopback"),
        ("0.0.0.0", {"unchecked": True, "plaintext": True}, "anybody"),
        ("0.0.0.0", {"unchecked": True, "tls": Tls(certificate=b"", key=b"")}, "anybody"),
        ("127.0.0.1", {"unchecked": True, "jwks": "keys.json"}, "exclude"),
        ("127.0.0.1", {"placet": "localhost:1", "jwks": "keys.json"}, "exclude"),
        ("127.0.0.1", {"jwks": "keys.json"}, "keys.json"),
        ("127.0.0.1", {}, "whose tokens count"),
        ("127.0.0.1", {"unchecked": True, "concurrency_max": 0}, "concurrency_max"),
    ],
)
def test_who_would_serve_anybody_does_not_serve(
    host: str, options: ServeOptions, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PLACET_TARGET", "PLACET_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ServeError, match=said):
        settings_of(Errands().app, host, 0, options)


def test_a_jwks_document_without_an_ed25519_key_is_none() -> None:
    for content in (b"", b"[]", b'{"keys":[]}', b'{"keys":[{"kid":"a","kty":"RSA"}]}', b" " * 300_000):
        with pytest.raises(KeysUnavailable):
            signing_key.parsed(content)


def test_what_the_token_check_needs_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "placet.connector.signing_key")
    with pytest.raises(ServeError, match=r"'jwt': pip install 'placet\[connector\]'"):
        settings_of(Errands().app, "127.0.0.1", 0, {"jwks": "keys.json"})


async def test_only_who_has_a_certificate_of_the_right_authority_may_dial() -> None:
    authority, stranger = Authority(), Authority()
    own = authority.server()
    tls = Tls(ca=authority.certificate, certificate=own.certificate, key=own.key)
    codes = []
    async with dialled(Errands().app, tls=tls) as dialler:
        target = f"localhost:{dialler.connector.port}"
        for issuer in (authority, stranger):
            placet = issuer.certify({NameOID.COMMON_NAME: "placet"})
            credentials = grpc.ssl_channel_credentials(authority.certificate, placet.key, placet.certificate)
            async with grpc.aio.secure_channel(target, credentials) as channel:
                try:
                    await ConnectorServiceStub(channel).Describe(pb.DescribeRequest(), timeout=20)
                    codes.append(grpc.StatusCode.OK)
                except grpc.aio.AioRpcError as error:
                    codes.append(error.code())
    assert [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE] == codes
