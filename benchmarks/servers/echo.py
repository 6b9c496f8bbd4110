"""The ceiling: a bare grpc.aio server on uvloop that returns the bytes it got, or streams chunks.

Argument: the port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import uvloop

SERVICE = "placet.benchmark.Echo"
CHUNK = b"x" * 100


async def echo(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    return request


async def stream(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """As many chunks as the request says."""
    for _ in range(int(request)):
        await context.write(CHUNK)


async def serve(port: int) -> None:
    server = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
