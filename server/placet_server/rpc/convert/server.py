"""Servers at work on the store → message."""

from __future__ import annotations

from placet.v1 import operations_service_pb2 as pb
from placet_server.rpc.convert.time import duration, timestamp
from placet_server.store.instance import Server


def server_message(server: Server, own_boot_id: str) -> pb.Server:
    boot = server.boot
    return pb.Server(
        server_id=boot.boot_id,
        host=boot.host,
        pid=boot.pid,
        version=boot.version,
        start_time=timestamp(server.started_time_us),
        heartbeat_time=timestamp(server.heartbeat_time_us),
        lease=duration(boot.lease_seconds),
        serves=boot.serves,
        queue_slots=boot.queue_slots,
        draining=server.is_draining,
        silent=server.is_silent,
        answering=boot.boot_id == own_boot_id,
    )
