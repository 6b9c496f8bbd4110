"""Clients that do not keep to HTTP/2 or gRPC: whatever they send, the server serves the next one."""

from __future__ import annotations

import asyncio
import struct

import pytest

from placet.v1 import runtime_service_pb2 as pb
from tests.rpc.support import Running, bearer, serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
END_HEADERS = 0x4


def headers(fields: list[tuple[bytes, bytes]]) -> bytes:
    """One HEADERS frame on stream 1 with literal fields, uncompressed (RFC 7541, 6.2.2)."""
    block = b"".join(b"\x00" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in fields)
    return struct.pack(">I", len(block))[1:] + bytes([1, END_HEADERS]) + struct.pack(">I", 1) + block


def call(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
    return (
        PREFACE
        + SETTINGS
        + headers([*fields, (b"te", b"trailers"), (b"content-type", b"application/grpc"), *more])
    )


METHOD = b"/placet.v1.RuntimeService/GetCaller"
SENT: dict[str, bytes] = {
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00",
    "HTTP/1": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "preface alone": PREFACE,
    "a path that is not UTF-8": call(b"/placet.v1.RuntimeService/\xff\xfe"),
    "a path with line breaks": call(b"/a\r\nb/c"),
    "an empty path": call(b""),
    "a token that is not ASCII": call(METHOD, (b"authorization", b"Bearer \xff\xfe")),
    "a deadline that is no number": call(METHOD, (b"grpc-timeout", b"soon")),
    "a deadline of nothing": call(METHOD, (b"grpc-timeout", b"0n")),
    "an unknown compression": call(METHOD, (b"grpc-encoding", b"zip")),
    "binary metadata that is no base64": call(METHOD, (b"x-bin", b"!!!")),
}


async def send(running: Running, raw: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    writer.write(raw)
    await writer.drain()
    try:
        async with asyncio.timeout(0.3):
            await reader.read()
    except (TimeoutError, ConnectionError):
        pass
    writer.close()


@pytest.mark.parametrize("raw", SENT.values(), ids=SENT)
async def test_the_server_outlives_it(raw: bytes) -> None:
    async with serving() as running, asyncio.timeout(10):
        await send(running, raw)
        for _ in range(2):
            await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer(), wait_for_ready=True)
