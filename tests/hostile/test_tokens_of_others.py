"""Tokens that expired, that others signed or nobody did, that name other services or no tenant: all unknown."""

from __future__ import annotations

import base64
import hmac
import json
import time
from hashlib import sha256

import grpc
import pytest

from placet_server.rpc.permission import SCOPES
from tests.hostile.served import Client, Served
from tests.rpc.keys import AUDIENCE, ISSUER, Issuer
from tests.rpc.support import ALL_PATHS, bearer, refusal, send_bytes


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsigned(header: dict[str, str], secret: bytes = b"") -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": 4_000_000_000,
        "sub": "alice",
        "tenant": "acme",
        "scope": "*",
    }
    said = f"{part(header)}.{part(claims)}"
    if not secret:
        return said + "."
    signature = hmac.new(secret, said.encode(), sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def forged(server: Served) -> dict[str, str]:
    stranger = Issuer()
    good = server.token()
    head, body, signature = good.split(".")
    return {
        "expired": server.token(exp=time.time() - 3600),
        "not yet": server.token(nbf=time.time() + 3600),
        "foreign key": stranger.token(exp=4_000_000_000),
        "foreign issuer": server.token(iss="https://other.test"),
        "other service": server.token(aud="other"),
        "no tenant": server.token(tenant=None),
        "tenant of no shape": server.token("../acme"),
        "tenant with NUL": server.token("a\x00"),
        "no subject": server.token(subject=None),
        "alg none": unsigned({"alg": "none", "kid": "k1"}),
        "alg None": unsigned({"alg": "None", "kid": "k1"}),
        "public key as secret": unsigned({"alg": "HS256", "kid": "k1"}, server.issuer.public_pem()),
        "unknown key": unsigned({"alg": "ES256", "kid": "k9"}, b"x"),
        "path as key": unsigned({"alg": "HS256", "kid": "../../../../dev/null"}, b"x"),
        "key from afar": unsigned({"alg": "ES256", "jku": "http://127.0.0.1:1/keys"}, b"x"),
        "no signature": f"{head}.{body}.",
        "other body": f"{head}.{part({'sub': 'root', 'tenant': 'globex'})}.{signature}",
        "nothing": ".",
        "dots": "." * 1000,
        "long": "a" * 8000,
        "deep": f"{base64.urlsafe_b64encode(b'[' * 5000).decode()}.{body}.{signature}",
    }


async def test_no_forged_token_is_known_and_none_is_told_why_in_detail(
    server: Served, client: Client
) -> None:
    async with server.unharmed():
        for name, token in forged(server).items():
            refused = await refusal(
                send_bytes(client.channel, "/placet.v1.RuntimeService/GetCaller", metadata=bearer(token))
            )
            assert (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED") == (refused.code, refused.reason), (
                name
            )
            assert len(token) < 50 or token not in str(refused.status)


@pytest.mark.parametrize("path", ALL_PATHS)
async def test_no_rpc_answers_the_unknown_not_even_about_their_bytes(
    server: Served, client: Client, path: str
) -> None:
    async with server.unharmed():
        for metadata in ((), bearer("x"), bearer(server.token(exp=1))):
            refused = await refusal(send_bytes(client.channel, path, b"\xff" * 9, metadata=metadata))
            assert "UNAUTHENTICATED" == refused.reason


@pytest.mark.parametrize(
    "path", [path for path in ALL_PATHS if not path.endswith(("GetCaller", "GetServerInfo"))]
)
async def test_a_token_without_the_scope_is_told_which_one(server: Served, client: Client, path: str) -> None:
    async with server.unharmed():
        refused = await refusal(send_bytes(client.channel, path, metadata=bearer(server.token(scope=""))))
    assert (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING") == (refused.code, refused.reason)
    assert SCOPES[path] == refused.infos[0].metadata["scope"]


async def test_tenant_in_metadata_means_nothing(server: Served, client: Client) -> None:
    said = (*client.metadata, ("x-tenant", "globex"), ("placet-tenant", "globex"), ("tenant", "globex"))
    (raw,) = await send_bytes(client.channel, "/placet.v1.RuntimeService/GetCaller", metadata=said)
    assert b"acme" in raw
    assert b"globex" not in raw


async def test_two_tokens_are_none(server: Served, client: Client) -> None:
    async with server.unharmed():
        two = (*client.metadata, *bearer("x"))
        refused = await refusal(send_bytes(client.channel, ALL_PATHS[0], metadata=two))
    assert "UNAUTHENTICATED" == refused.reason
