"""Reflection is for development, and then it shows the whole contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.postgres import Database
from tests.rpc.servers import config_of, running
from tests.rpc.support import SERVICES


async def test_every_service_is_listed_and_described(database: Database, tmp_path: Path) -> None:
    async with running(config_of(database.dsn, tmp_path, reflection=True)) as client:
        stub_type: Any = reflection_pb2_grpc.ServerReflectionStub
        stub = stub_type(client.channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")] + [
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=service.full_name)
            for service in SERVICES
        ]
        listed, *described = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
    names = {service.name for service in listed.list_services_response.service}
    assert {service.full_name for service in SERVICES} <= names
    assert [True] * len(SERVICES) == [answer.HasField("file_descriptor_response") for answer in described]
