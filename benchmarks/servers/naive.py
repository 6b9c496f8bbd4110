"""What one would write first: two transactions around the work, a pool as it comes, no gate at all.

Same runtime as the others (grpc.aio, uvloop), so that what differs is how durability is had.
Arguments: the port and the DSN.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any

import asyncpg
import grpc
import uvloop

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb

SERVICE = "placet.benchmark.Naive"


class Naive:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def execute(
        self, request: pb.ExecuteRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ExecuteResponse:
        invocation = request.invocation
        action_id = uuid.uuid4()
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "insert into naive_actions (id, key, capability, input, state) values ($1, $2, $3, $4, 'RUNNING')",
                action_id,
                invocation.options.idempotency_key,
                invocation.capability,
                invocation.input_json,
            )
            await connection.execute(
                "insert into naive_events (action_id, sequence, type) values ($1, 1, 'admitted')", action_id
            )
        output = json.dumps(noop(json.loads(invocation.input_json)))
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(
                "update naive_actions set state = 'SUCCEEDED', output = $2, settle_time = now() where id = $1",
                action_id,
                output,
            )
            await connection.execute(
                "insert into naive_events (action_id, sequence, type) values ($1, 2, 'settled')", action_id
            )
        done = action_pb2.Action(
            action_id=str(action_id),
            state=action_pb2.ACTION_STATE_SUCCEEDED,
            output_json=output,
        )
        return pb.ExecuteResponse(action=done)


def noop(order: dict[str, Any]) -> dict[str, Any]:
    return {"order": order["order"]}


async def serve(port: int, dsn: str) -> None:
    async with asyncpg.create_pool(dsn) as pool:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            Naive(pool).execute,
            request_deserializer=pb.ExecuteRequest.FromString,
            response_serializer=pb.ExecuteResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Execute": handler}),)
        )
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2]))
