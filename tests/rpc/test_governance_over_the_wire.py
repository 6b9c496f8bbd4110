"""Weakening, withdrawing and the first policies, as clients of a whole server meet them."""

import json
from pathlib import Path
from typing import Any

import grpc

from placet import App
from placet.v1 import approval_service_pb2 as ab
from placet.v1 import catalog_service_pb2 as cb
from placet.v1 import decision_pb2
from placet.v1 import policy_service_pb2 as pb
from placet.v1.approval_service_pb2_grpc import ApprovalServiceStub
from placet.v1.policy_service_pb2_grpc import PolicyServiceStub
from tests.postgres import Database
from tests.rpc.keys import Issuer
from tests.rpc.servers import config_of, running
from tests.rpc.support import bearer, refusal


def shop() -> App:
    app = App("shop")
    for version, attempts_max in (("1", 1), ("2", 3)):

        @app.tool("shop.find", "read", version=version, attempts_max=attempts_max)
        async def find(text: str) -> str:
            return text

    return app


def request(*versions: str) -> cb.AdmitManifestRequest:
    manifest = shop().manifest()
    kept = [each for each in manifest.capabilities if each.version in versions]
    del manifest.capabilities[:]
    manifest.capabilities.extend(kept)
    return cb.AdmitManifestRequest(manifest=manifest)


async def test_a_weakening_waits_for_a_second_person_and_is_then_done_by_the_server(
    database: Database, tmp_path: Path
) -> None:
    config = config_of(database.dsn, tmp_path, admit_apps=False, dev_people="petra:approver")
    async with running(config, [shop()]) as client:
        petra = bearer(json.loads((tmp_path / "token.petra").read_text())["token"])
        catalog, approvals = client.catalog, ApprovalServiceStub(client.channel)
        await catalog.AdmitManifest(request("1"), metadata=client.metadata)
        refused = await refusal(catalog.AdmitManifest(request("2"), metadata=client.metadata))
        assert (grpc.StatusCode.FAILED_PRECONDITION, "APPROVAL_REQUIRED") == (refused.code, refused.reason)
        (wait,) = refused.outcomes[0].waits
        shown = await approvals.GetApproval(
            ab.GetApprovalRequest(approval_id=wait.approval_id), metadata=petra
        )
        yes: dict[str, Any] = {
            "approval_id": wait.approval_id,
            "digest": shown.approval.digest,
            "decision_id": "petra-1",
            "verdict": decision_pb2.VOTE_VERDICT_APPROVE,
        }
        own = await refusal(
            approvals.DecideApproval(ab.DecideApprovalRequest(**yes), metadata=client.metadata)
        )
        assert "NOT_ELIGIBLE" == own.reason
        await approvals.DecideApproval(ab.DecideApprovalRequest(**yes), metadata=petra)
        # Whoever is first: the server, or this very request, which meets the action or finds it done.
        again = await catalog.AdmitManifest(request("2"), metadata=client.metadata)
        assert 64 == len(again.digest)
        found = await catalog.GetCapability(
            cb.GetCapabilityRequest(name="shop.find"), metadata=client.metadata
        )
        assert "2" == found.capability.version
        gone = cb.WithdrawCapabilityRequest(name="shop.find", version="2", reason="broken")
        assert ["2"] == list((await catalog.WithdrawCapability(gone, metadata=client.metadata)).versions)
        lost = await refusal(client.execute("shop.find", {"text": "x"}, ""))
        assert "CAPABILITY_NOT_FOUND" == lost.reason


async def test_the_first_policies_come_with_the_servers_own_token_and_once(
    database: Database, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text(Issuer().document())
    config = config_of(
        database.dsn,
        tmp_path,
        identity_dev=False,
        jwt_issuer="https://issuer.test",
        jwt_audience="placet",
        jwt_jwks_file=tmp_path / "keys",
        bootstrap_token_file=tmp_path / "token",
    )
    async with running(config) as client:
        policies = PolicyServiceStub(client.channel)
        first = pb.AdmitPolicySetRequest(
            policy_set=pb.PolicySet(name="first", cedar="permit (principal, action, resource);")
        )
        admitted = await policies.AdmitPolicySet(first, metadata=client.metadata)
        assert (1, True) == (admitted.revision, admitted.changed)
        used = await refusal(policies.AdmitPolicySet(first, metadata=client.metadata))
        assert (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED") == (used.code, used.reason)
