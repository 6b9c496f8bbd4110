"""The issuer changes its keys; its server is slow, huge, elsewhere, or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from placet_server.model.errors import Unauthenticated
from placet_server.rpc.identity.jwks import JWKS_BYTES_MAX, KeySet, KeySetUnavailable, from_file, from_url
from tests.rpc.keys import Issuer, jwt_tokens


class Site:
    """Answers every GET; counts them."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.location = ""
        self.gets = 0
        self.url = ""


@contextmanager
def site() -> Iterator[Site]:
    told = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.gets += 1
            self.send_response(told.status)
            if told.location:
                self.send_header("location", told.location)
            self.send_header("content-length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}/jwks"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_a_new_key_is_found_and_an_old_one_forgotten(tmp_path: Path) -> None:
    issuer, path = Issuer(), tmp_path / "jwks.json"
    path.write_text(issuer.document())
    tokens = await jwt_tokens(path)
    old = issuer.token()
    assert await tokens.establish(old) is not None
    issuer.keys = {"k2": ec.generate_private_key(ec.SECP256R1())}
    path.write_text(issuer.document())
    known = await tokens.establish(issuer.token(key_id="k2"))
    assert known is not None
    assert "alice" == known.caller.subject
    with pytest.raises(Unauthenticated):
        await tokens.establish(old)


async def test_invented_key_ids_do_not_make_the_server_ask_more_often() -> None:
    issuer = Issuer()
    with site() as told:
        told.body = issuer.document().encode()
        keys = KeySet(from_url(told.url), refresh_seconds=3600, refresh_seconds_min=3600)
        await keys.load()
        for number in range(50):
            with pytest.raises(Unauthenticated):
                await keys.key(f"invented-{number}")
        assert 1 == told.gets


async def test_many_calls_with_an_unknown_key_ask_once() -> None:
    issuer = Issuer()
    with site() as told:
        told.body = issuer.document().encode()
        keys = KeySet(from_url(told.url), refresh_seconds=3600, refresh_seconds_min=600)
        await keys.load()
        keys._tried_at = float("-inf")
        asked = [keys.key("unknown") for _ in range(20)]
        await asyncio.gather(*asked, return_exceptions=True)
        assert 2 == told.gets


async def test_old_keys_stay_in_use_while_the_issuer_is_away(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    with site() as told:
        told.body = issuer.document().encode()
        keys = KeySet(from_url(told.url), refresh_seconds=0, refresh_seconds_min=0)
        await keys.load()
        told.status = 503
        assert "k1" == (await keys.key("k1")).key_id
    assert "k1" == (await keys.key("k1")).key_id
    assert "old ones stay in use" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":[]}',
        b'{"keys":{}}',
        b'{"keys":[{"kid":"a","kty":"nope"}]}',
        b"x" * (JWKS_BYTES_MAX + 1),
    ],
    ids=["nothing", "list", "no keys", "empty", "object", "unknown kind", "too large"],
)
async def test_a_document_without_usable_keys_is_refused(body: bytes) -> None:
    with site() as told:
        told.body = body
        with pytest.raises(KeySetUnavailable):
            await KeySet(from_url(told.url), refresh_seconds=1, refresh_seconds_min=1).load()


async def test_redirects_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as elsewhere, site() as told:
        elsewhere.body = Issuer().document().encode()
        told.status, told.location = 302, elsewhere.url
        monkeypatch.setenv("HTTP_PROXY", elsewhere.url)
        monkeypatch.setenv("ALL_PROXY", elsewhere.url)
        with pytest.raises(KeySetUnavailable):
            await KeySet(from_url(told.url), refresh_seconds=1, refresh_seconds_min=1).load()
        assert (1, 0) == (told.gets, elsewhere.gets)


async def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(KeySetUnavailable, match="jwks"):
        await KeySet(from_file(tmp_path / "jwks.json"), refresh_seconds=1, refresh_seconds_min=1).load()
