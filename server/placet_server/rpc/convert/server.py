"""Servers at work on the store, and what one has for agents → message."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from placet.v1 import operations_service_pb2 as pb
from placet.v1 import runtime_service_pb2
from placet_server.core.execution.program import NamedModel
from placet_server.model.usage import Budget
from placet_server.rpc.convert.agent import budget_message
from placet_server.rpc.convert.time import duration, timestamp
from placet_server.store.instance import Server

MODELS_TOLD_MAX = 1000
FILE_PROBLEM_LENGTH_MAX = 2048


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


def agent_support(
    is_installed: bool, models: Iterable[NamedModel], budget_max: Budget, problems: Iterable[str] = ()
) -> runtime_service_pb2.AgentSupport:
    message = runtime_service_pb2.AgentSupport(installed=is_installed, budget_max=budget_message(budget_max))
    for model in islice(models, MODELS_TOLD_MAX):
        message.models.add(name=model.name, problem=model.problem)
    message.file_problems.extend(problem[:FILE_PROBLEM_LENGTH_MAX] for problem in problems)
    return message
