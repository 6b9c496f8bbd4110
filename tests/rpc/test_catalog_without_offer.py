"""A server that offers its apps to nobody: each tenant admits the manifests it wants."""

from pathlib import Path

import grpc
import pytest

from placet import App
from placet.v1 import catalog_service_pb2 as pb
from tests.postgres import Database
from tests.rpc.servers import config_of, running


async def test_a_tenant_can_run_what_it_has_admitted_and_nothing_before(
    database: Database, tmp_path: Path
) -> None:
    app = App("shop")

    @app.tool("shop.refund", "idempotent")
    async def refund(order: str) -> str:
        return order

    async with running(config_of(database.dsn, tmp_path, admit_apps=False), [app]) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.execute("shop.refund", {"order": "1"}, "k")
        request = pb.AdmitManifestRequest(manifest=app.manifest())
        admitted = await client.catalog.AdmitManifest(request, metadata=client.metadata)
        again = await client.catalog.AdmitManifest(request, metadata=client.metadata)
        done = await client.execute("shop.refund", {"order": "1"}, "k")
    assert ("placet-reason", "CAPABILITY_NOT_FOUND") in tuple(refused.value.trailing_metadata())
    assert (True, False, admitted.digest) == (admitted.changed, again.changed, again.digest)
    assert '"1"' == done.action.output_json
