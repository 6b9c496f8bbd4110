"""Queues → message."""

from __future__ import annotations

from placet.v1 import operations_service_pb2 as pb
from placet_server.rpc.convert.time import duration, timestamp
from placet_server.store.queue import QueueDepth


def queue_message(depth: QueueDepth) -> pb.Queue:
    oldest = None if depth.oldest_seconds is None else duration(depth.oldest_seconds)
    return pb.Queue(
        name=depth.name,
        ready=depth.ready,
        delayed=depth.delayed,
        unroutable=depth.unroutable,
        oldest=oldest,
        claims_per_second=depth.claims_per_second,
        settles_per_second=depth.settles_per_second,
        paused=depth.pause_time_us is not None,
        paused_reason=depth.paused_reason,
        pause_time=None if depth.pause_time_us is None else timestamp(depth.pause_time_us),
    )
