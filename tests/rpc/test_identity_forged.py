"""Tokens that must not count, and claims that must."""

from __future__ import annotations

import base64
import hmac
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.caller import CallerKind, Credential, Delegate, Login
from placet_server.rpc.identity import layer
from placet_server.rpc.identity.claim import ClaimMapping
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.identity.source import Known
from tests.rpc.keys import Issuer, jwt_tokens
from tests.rpc.support import ALICE, ALL_PATHS, OneToken, Refusal, Setup, bearer, refusal, send_bytes, serving


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def jwks(issuer: Issuer, tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(issuer.document())
    return path


async def refused_with(jwks: Path, token: str, **options: Any) -> Refusal:
    async with serving(Setup(tokens=[await jwt_tokens(jwks, **options)])) as running:
        return await refusal(running.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer(token)))


async def caller_of(jwks: Path, token: str, **options: Any) -> Any:
    seen = []

    async def see(rpc: Any) -> None:
        seen.append(rpc.caller)

    async with serving(Setup(behaviour=see, tokens=[await jwt_tokens(jwks, **options)])) as running:
        await running.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer(token))
    return seen[0]


async def test_a_good_token_says_who_calls(issuer: Issuer, jwks: Path) -> None:
    caller = await caller_of(jwks, issuer.token(kind="agent", roles=["b", "a"], scope="actions.read x"))
    assert ("acme", "alice", CallerKind.AGENT) == (caller.tenant, caller.subject, caller.kind)
    assert (("a", "b"), {"actions.read", "x"}, "jwt") == (caller.roles, caller.scopes, caller.identity_source)


async def test_a_token_says_through_whom_and_how_strongly_somebody_is_there(
    issuer: Issuer, jwks: Path
) -> None:
    act = {"sub": "clerk", "kind": "agent", "act": {"sub": "portal"}}
    token = issuer.token(act=act, groups="b a", acr="urn:mfa", amr=["pwd", "otp"], auth_time=1_700_000_000)
    caller = await caller_of(jwks, token)
    delegates = (Delegate(subject="clerk", kind=CallerKind.AGENT), Delegate(subject="portal"))
    assert (("a", "b"), delegates, False) == (caller.groups, caller.delegation, caller.is_person)
    assert Login(strength="urn:mfa", methods=("otp", "pwd"), time_us=1_700_000_000_000_000) == caller.login
    assert 10 == len((await caller_of(jwks, issuer.token(act=chain(10)))).delegation)
    assert Login(methods=("hwk",)) == (await caller_of(jwks, issuer.token(amr=["hwk"]))).login
    plain = await caller_of(jwks, issuer.token())
    assert (None, (), True) == (plain.login, plain.delegation, plain.is_person)


async def test_claims_are_read_by_the_names_that_the_operator_gave(issuer: Issuer, jwks: Path) -> None:
    mapping = ClaimMapping(
        subject="mail", groups="org.groups", delegation="through", login_strength="", login_time="since"
    )
    claims: dict[str, Any] = {
        "mail": "a@b",
        "org": {"groups": ["g"]},
        "through": {"mail": "c@d"},
        "acr": "1",
        "since": 5,
    }
    caller = await caller_of(jwks, issuer.token(act={"sub": "nobody"}, **claims), mapping=mapping)
    assert ("a@b", ("g",), (Delegate(subject="c@d"),)) == (caller.subject, caller.groups, caller.delegation)
    assert Login(time_us=5_000_000) == caller.login
    # Who acts is named as subjects are, or could not be told from them.
    refused = await refused_with(jwks, issuer.token(mail="a@b", through={"sub": "c"}), mapping=mapping)
    assert "UNAUTHENTICATED" == refused.reason


def unsigned(token: str, header: dict[str, Any]) -> str:
    return ".".join((_encoded(json.dumps(header).encode()), token.split(".")[1], ""))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def signed_with_public_key(issuer: Issuer) -> str:
    """The confusion of algorithms: a public key taken for a shared secret."""
    head = _encoded(json.dumps({"alg": "HS256", "kid": "k1"}).encode())
    signed = f"{head}.{issuer.token().split('.')[1]}"
    return f"{signed}.{_encoded(hmac.digest(issuer.public_pem(), signed.encode(), 'sha256'))}"


def tampered(token: str) -> str:
    head, _, signature = token.split(".")
    claims = {
        "iss": "https://issuer.test",
        "aud": "placet",
        "exp": time.time() + 60,
        "sub": "root",
        "tenant": "acme",
    }
    return ".".join((head, _encoded(json.dumps(claims).encode()), signature))


def without_key_id(issuer: Issuer) -> str:
    return jwt.encode({"sub": "alice"}, issuer.keys["k1"], "ES256")


def chain(length: int) -> dict[str, Any] | None:
    return {"sub": f"bot-{length}", "act": chain(length - 1)} if length else None


FORGED: dict[str, Any] = {
    "expired": lambda i: i.token(exp=time.time() - 1),
    "no expiry": lambda i: i.token(exp=None),
    "not valid yet": lambda i: i.token(nbf=time.time() + 100),
    "another issuer": lambda i: i.token(iss="https://evil.test"),
    "no issuer": lambda i: i.token(iss=None),
    "another audience": lambda i: i.token(aud="other"),
    "no audience": lambda i: i.token(aud=None),
    "algorithm none": lambda i: unsigned(i.token(), {"alg": "none", "kid": "k1"}),
    "algorithm None": lambda i: unsigned(i.token(), {"alg": "None", "kid": "k1"}),
    "algorithm confusion": signed_with_public_key,
    "tampered": lambda i: tampered(i.token()),
    "unknown key": lambda i: Issuer().token(headers={"kid": "k2"}),
    "key of somebody else under a known id": lambda i: Issuer().token(),
    "no key id": without_key_id,
    "critical header": lambda i: i.token(headers={"crit": ["b64"], "b64": True}),
    "no tenant": lambda i: i.token(tenant=None),
    "the server's tenant": lambda i: i.token(tenant="-"),
    "tenant in upper case": lambda i: i.token(tenant="Acme"),
    "tenant with a line break": lambda i: i.token(tenant="acme\n"),
    "tenant that is no text": lambda i: i.token(tenant=["acme"]),
    "no subject": lambda i: i.token(sub=None),
    "empty subject": lambda i: i.token(sub=""),
    "subject with control characters": lambda i: i.token(sub="al\x1bice"),
    "subject too long": lambda i: i.token(sub="a" * 257),
    "roles that are no list": lambda i: i.token(roles={"admin": True}),
    "roles that are no texts": lambda i: i.token(roles=[1]),
    "a role that is no text": lambda i: i.token(roles=["\ud800"]),
    "a group with a NUL": lambda i: i.token(groups=["a\0b"]),
    "a strength of login that is no text": lambda i: i.token(acr="\udfff"),
    "too many scopes": lambda i: i.token(scope=" ".join(map(str, range(65)))),
    "groups that are no list": lambda i: i.token(groups=7),
    "a delegate that is no object": lambda i: i.token(act="bot"),
    "a delegate without a subject": lambda i: i.token(act={"iss": "https://issuer.test"}),
    "a delegate of an unknown kind": lambda i: i.token(act={"sub": "bot", "kind": "god"}),
    "a delegate that is unreadable further down": lambda i: i.token(act={"sub": "bot", "act": []}),
    "too many delegates": lambda i: i.token(act=chain(11)),
    "a login that is no text": lambda i: i.token(acr=["mfa"]),
    "methods of login that are no texts": lambda i: i.token(amr=[1]),
    "a login at no time": lambda i: i.token(auth_time="yesterday"),
    "a login at a time that is none": lambda i: i.token(auth_time=True),
    "a login before the beginning of time": lambda i: i.token(auth_time=-1),
    "a strength of login too long": lambda i: i.token(acr="x" * 257),
    "a login after the end of time": lambda i: i.token(auth_time=1e300),
    "unknown kind": lambda i: i.token(kind="god"),
    "garbage": lambda i: "garbage",
    "three empty parts": lambda i: "..",
    "too long": lambda i: "x" * 9000,
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
async def test_a_token_that_does_not_hold_is_refused_and_not_repeated(
    forge: Any, issuer: Issuer, jwks: Path
) -> None:
    token = forge(issuer)
    refused = await refused_with(jwks, token)
    assert (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED") == (refused.code, refused.reason)
    assert token == ".." or token not in refused.message + repr(refused.trailers)


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Basic Z29vZA=="),),
        (("authorization", "Bearer"),),
        (("authorization", "Bearer bad"),),
        (("authorization", "Bearer good"), ("authorization", "Bearer good")),
    ],
    ids=["none", "empty", "basic", "no token", "bad", "twice"],
)
async def test_no_rpc_answers_whom_it_does_not_know(path: str, metadata: Any) -> None:
    async with serving() as running:
        refused = await refusal(send_bytes(running.channel, path, b"\xff garbage", metadata=metadata))
    assert "UNAUTHENTICATED" == refused.reason


@pytest.mark.parametrize(("expire_time", "held_until"), [(1010.0, 1010.0), (5000.0, 1060.0), (None, 1060.0)])
def test_a_decision_is_remembered_for_a_minute_and_no_longer_than_its_evidence_holds(
    expire_time: float | None, held_until: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(layer, "time", lambda: now[0])
    cache = layer.DecisionCache()
    cache.put(b"digest", Known(caller=ALICE, expire_time=expire_time))
    now[0] = held_until - 0.1
    assert cache.get(b"digest") is ALICE
    now[0] = held_until
    assert cache.get(b"digest") is None


def test_decisions_are_bounded() -> None:
    cache = layer.DecisionCache()
    for number in range(layer.DECISIONS_MAX + 10):
        cache.put(str(number).encode(), Known(caller=ALICE, expire_time=None))
    assert len(cache._decisions) <= layer.DECISIONS_MAX
    assert cache.get(str(layer.DECISIONS_MAX + 9).encode()) is ALICE


@pytest.mark.parametrize(
    "different",
    [
        {"tenant": "other"},
        {"subject": "bob"},
        {"scopes": frozenset()},
        {"credential": Credential(handle="h")},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_kept_for_a_caller_is_not_found_by_another(different: dict[str, Any]) -> None:
    kept = {ALICE: "hers"}
    assert "hers" == kept[replace(ALICE)]
    assert replace(ALICE, **different) not in kept
    assert "_hash" not in repr(ALICE)


async def test_claims_in_the_payload_count_for_nothing(issuer: Issuer, jwks: Path) -> None:
    """T5: the trusted identity is the transport's."""
    seen = []

    async def see(rpc: Any) -> None:
        seen.append((rpc.caller.tenant, rpc.caller.subject))

    invocation = action_pb2.Invocation(
        capability="a.b",
        input_json='{"tenant":"evil","subject":"root"}',
        options=action_pb2.InvocationOptions(labels={"tenant": "evil"}),
    )
    metadata = (*bearer(issuer.token(scope="actions.execute")), ("tenant", "evil"), ("placet-tenant", "evil"))
    async with serving(Setup(behaviour=see, tokens=[await jwt_tokens(jwks)])) as running:
        await running.runtime.Execute(pb.ExecuteRequest(invocation=invocation), metadata=metadata)
    assert [("acme", "alice")] == seen


async def test_scopes_decide_what_may_be_called(issuer: Issuer, jwks: Path) -> None:
    async with serving(Setup(tokens=[await jwt_tokens(jwks)])) as running:
        metadata = bearer(issuer.token(scope="actions.read"))
        await running.runtime.ListActions(pb.ListActionsRequest(), metadata=metadata)
        refused = await refusal(
            running.runtime.Execute(
                pb.ExecuteRequest(invocation=action_pb2.Invocation(capability="a.b")), metadata=metadata
            )
        )
    assert (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING") == (refused.code, refused.reason)
    assert "actions.execute" == refused.infos[0].metadata["scope"]


async def test_claims_are_found_where_the_operator_says(issuer: Issuer, jwks: Path) -> None:
    mapping = ClaimMapping(
        tenant="org.id",
        subject="https://x.test/user",
        roles="realm_access.roles",
        scopes="",
        scopes_default=("actions.read",),
        credential_handle="vault.handle",
        credential_issuer="vault.issuer",
        credential_scopes="vault.scopes",
    )
    names: dict[str, Any] = {"https://x.test/user": "bob"}
    token = issuer.token(
        org={"id": "beta"},
        realm_access={"roles": ["finance"]},
        vault={"handle": "h1", "issuer": "v", "scopes": ["pay"]},
        **names,
    )
    caller = await caller_of(jwks, token, mapping=mapping)
    assert ("beta", "bob", ("finance",), {"actions.read"}) == (
        caller.tenant,
        caller.subject,
        caller.roles,
        caller.scopes,
    )
    assert ("h1", "v", {"pay"}) == (
        caller.credential.handle,
        caller.credential.issuer,
        caller.credential.scopes,
    )


async def test_a_bad_token_is_not_saved_by_a_second_source(issuer: Issuer, jwks: Path) -> None:
    sources: list[Any] = [OneToken("dev"), await jwt_tokens(jwks)]
    async with serving(Setup(identity=Identity(sources))) as running:
        await running.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer("dev"))
        await running.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer(issuer.token()))
        refused = await refusal(
            running.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer("devx"))
        )
    assert "UNAUTHENTICATED" == refused.reason
