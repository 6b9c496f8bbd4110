"""Mutual TLS: the certificate says who calls."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.caller import Caller, CallerKind
from placet_server.model.errors import Unauthenticated
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.identity.mtls import MtlsCertificates, MtlsRule
from tests.rpc.keys import Authority, Certified
from tests.rpc.support import OneToken, Setup, bearer, refusal, serving

NAMED = {NameOID.ORGANIZATION_NAME: "acme", NameOID.COMMON_NAME: "billing"}


def setup_of(
    authority: Authority,
    client: Certified | None,
    seen: list[Caller],
    *,
    trust_domain: str = "",
    trusted: Authority | None = None,
) -> Setup:
    server = authority.server()
    rule = MtlsRule(trust_domain=trust_domain, scopes=frozenset({"actions.read"}))

    async def see(rpc: Any) -> None:
        seen.append(rpc.caller)

    return Setup(
        behaviour=see,
        identity=Identity([OneToken()], MtlsCertificates(rule)),
        transport={
            "address": "localhost:0",
            "credentials": grpc.ssl_server_credentials(
                [(server.key, server.certificate)],
                (trusted or authority).certificate,
                require_client_auth=True,
            ),
        },
        channel_credentials=grpc.ssl_channel_credentials(
            authority.certificate, client.key if client else None, client.certificate if client else None
        ),
    )


async def test_organisation_and_common_name_are_tenant_and_subject() -> None:
    authority, seen = Authority(), list[Caller]()
    async with serving(setup_of(authority, authority.certify(NAMED), seen)) as running:
        await running.runtime.ListActions(pb.ListActionsRequest())
        await running.runtime.ListActions(pb.ListActionsRequest())
    assert [("acme", "billing", CallerKind.SERVICE, "mtls")] * 2 == [
        (caller.tenant, caller.subject, caller.kind, caller.identity_source) for caller in seen
    ]


async def test_a_spiffe_id_of_the_trust_domain_is_tenant_and_subject() -> None:
    authority, seen = Authority(), list[Caller]()
    name = x509.UniformResourceIdentifier("spiffe://corp.test/acme/ns/prod/sa/billing")
    client = authority.certify(NAMED, names=[name])
    async with serving(setup_of(authority, client, seen, trust_domain="corp.test")) as running:
        await running.runtime.ListActions(pb.ListActionsRequest())
    assert [("acme", "ns/prod/sa/billing")] == [(caller.tenant, caller.subject) for caller in seen]


async def test_a_token_counts_before_the_certificate() -> None:
    authority, seen = Authority(), list[Caller]()
    async with serving(setup_of(authority, authority.certify(NAMED), seen)) as running:
        await running.runtime.ListActions(pb.ListActionsRequest(), metadata=bearer())
        refused = await refusal(running.runtime.ListActions(pb.ListActionsRequest(), metadata=bearer("bad")))
    assert ["alice"] == [caller.subject for caller in seen]
    assert "UNAUTHENTICATED" == refused.reason


@pytest.mark.parametrize("foreign", [True, False], ids=["another authority", "none"])
async def test_a_connection_without_a_trusted_certificate_is_not_made(foreign: bool) -> None:
    authority, seen = Authority(), list[Caller]()
    client = Authority().certify(NAMED) if foreign else None
    async with serving(setup_of(authority, client, seen)) as running:
        refused = await refusal(running.runtime.ListActions(pb.ListActionsRequest(), timeout=5))
    assert (grpc.StatusCode.UNAVAILABLE, []) == (refused.code, seen)


BAD: dict[str, Any] = {
    "no organisation": {"subject": {NameOID.COMMON_NAME: "billing"}},
    "organisation that is no tenant": {"subject": NAMED | {NameOID.ORGANIZATION_NAME: "ACME Inc."}},
    "no SPIFFE id": {"subject": NAMED, "spiffe": []},
    "SPIFFE id of another domain": {"subject": NAMED, "spiffe": ["spiffe://evil.test/acme/x"]},
    "two SPIFFE ids": {"subject": NAMED, "spiffe": ["spiffe://corp.test/acme/x", "spiffe://corp.test/b/x"]},
    "SPIFFE id without subject": {"subject": NAMED, "spiffe": ["spiffe://corp.test/acme"]},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_certificate_that_names_nobody_is_refused(bad: Any) -> None:
    spiffe = bad.get("spiffe")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name) for name in spiffe or ()]
    names = names or [x509.DNSName("x")]
    client = Authority().certify(bad["subject"], names=names)
    rule = MtlsRule(trust_domain="corp.test" if spiffe is not None else "")
    with pytest.raises(Unauthenticated):
        MtlsCertificates(rule).establish(client.certificate)


def test_what_is_known_of_a_certificate_ends_with_it() -> None:
    client = Authority().certify(NAMED, days=-1)
    known = MtlsCertificates(MtlsRule()).establish(client.certificate)
    assert known.expire_time is not None
    assert known.expire_time < time.time()
