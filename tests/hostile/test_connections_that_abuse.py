"""What is no gRPC, or gRPC that no client speaks, at the port: the transport answers or hangs up, others are served."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.hostile import http2
from tests.hostile.http2 import Connection, connected
from tests.hostile.served import Client, Served
from tests.rpc.support import bearer, refusal, send_bytes

ECHO = "/placet.v1.RuntimeService/Execute"
CALLER = "/placet.v1.RuntimeService/GetCaller"
HEAD = http2.END_HEADERS


def echo() -> bytes:
    invocation = action_pb2.Invocation(capability="hostile.echo", input_json='{"text":"a"}')
    return pb.ExecuteRequest(invocation=invocation).SerializeToString()


@pytest.mark.parametrize(
    "path",
    [
        "/placet.v1.RuntimeService/Undo",
        "/placet.v1.RuntimeService/execute",
        "/placet.v1.RuntimeService/",
        "/placet.v2.RuntimeService/Execute",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/" + "a" * 4000,
        "/%00/%0a",
    ],
)
async def test_a_method_that_is_not_there_is_named_and_counted_once(
    server: Served, client: Client, path: str
) -> None:
    async with server.unharmed():
        for raw in (b"", b"\xff" * 9, echo()):
            refused = await refusal(send_bytes(client.channel, path, raw, metadata=client.metadata))
            assert (grpc.StatusCode.UNIMPLEMENTED, "UNKNOWN_METHOD") == (refused.code, refused.reason)


@pytest.mark.parametrize("count", [1, 100])
async def test_metadata_above_its_limit_is_refused_by_the_transport(
    server: Served, client: Client, count: int
) -> None:
    large = tuple((f"x-{n}", "v" * (20_000 // count)) for n in range(count))
    async with server.unharmed():
        refused = await refusal(send_bytes(client.channel, CALLER, metadata=(*client.metadata, *large)))
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, []) == (refused.code, refused.infos)


@pytest.mark.parametrize(
    "said",
    [
        ("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"),
        ("traceparent", "ff-" + "z" * 5000),
        ("tracestate", "a=" + "b" * 5000),
        ("baggage", "a=%00%0a;" * 500),
        ("x-bin", b"\x00\xff" * 1000),
        ("grpc-previous-rpc-attempts", "-1"),
        ("placet-message-id", "x" * 5000),
        ("user-agent", "%s%n" * 100),
    ],
)
async def test_metadata_that_means_nothing_here_is_not_tripped_over(
    server: Served, client: Client, said: tuple[str, str | bytes]
) -> None:
    async with server.unharmed():
        assert [] != await send_bytes(client.channel, CALLER, metadata=(*client.metadata, said, said))


# A read that is faster than the deadline may be answered; an invocation without time for its reply margin never begins.
@pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])
async def test_no_time_at_all_is_a_deadline_exceeded(server: Served, client: Client, rpc: str) -> None:
    async with server.unharmed():
        for seconds in (0.0, -1.0, 1e-9):
            refused = await refusal(
                send_bytes(
                    client.channel,
                    f"/placet.v1.RuntimeService/{rpc}",
                    echo(),
                    metadata=client.metadata,
                    seconds=seconds,
                )
            )
            assert grpc.StatusCode.DEADLINE_EXCEEDED == refused.code


@pytest.mark.parametrize(
    "span", ["0n", "0S", "1n", "-1S", "1", "S", "", "99999999H", "999999999999S", "1x", "√"]
)
async def test_a_timeout_written_by_hand_starts_nothing_that_outlives_it(server: Served, span: str) -> None:
    fields = http2.request(ECHO, [("authorization", "Bearer x"), ("grpc-timeout", span)])
    async with server.unharmed(), connected(server.address) as connection:
        await connection.greet()
        await connection.send(
            http2.frame(http2.HEADERS, HEAD, 1, http2.block(fields)),
            http2.frame(http2.DATA, http2.END_STREAM, 1, http2.message(echo())),
        )
        ended = [kind for kind, _, stream, _ in await connection.frames(5) if stream == 1]
        assert ended


Abuse = Callable[[Connection], Awaitable[None]]


async def random_bytes(connection: Connection) -> None:
    await connection.send(random.Random(1).randbytes(100_000))


async def http_1(connection: Connection) -> None:
    await connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 10_000 + b"\r\n")


async def tls_hello(connection: Connection) -> None:
    await connection.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(508))


async def frame_too_large(connection: Connection) -> None:
    await connection.send(http2.PREFACE, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"a" * 100_000)


async def data_without_headers(connection: Connection) -> None:
    await connection.send(
        http2.PREFACE, http2.frame(http2.SETTINGS, 0, 0), http2.frame(http2.DATA, 0, 1, b"a" * 100)
    )


async def broken_header_block(connection: Connection) -> None:
    await connection.send(
        http2.PREFACE, http2.frame(http2.SETTINGS, 0, 0), http2.frame(http2.HEADERS, HEAD, 1, b"\xff" * 500)
    )


async def window_of_nothing(connection: Connection) -> None:
    settings = (4).to_bytes(2, "big") + (2**32 - 1).to_bytes(4, "big")
    await connection.send(http2.PREFACE, http2.frame(http2.SETTINGS, 0, 0, settings))


async def half_a_preface(connection: Connection) -> None:
    await connection.send(http2.PREFACE[:10])


@pytest.mark.parametrize(
    "abuse",
    [
        random_bytes,
        http_1,
        tls_hello,
        frame_too_large,
        data_without_headers,
        broken_header_block,
        window_of_nothing,
        half_a_preface,
    ],
)
async def test_what_is_no_http2_harms_nobody(server: Served, abuse: Abuse) -> None:
    async with server.unharmed():
        for _ in range(20):
            async with connected(server.address) as connection:
                await abuse(connection)
        # Half open: it stays while others are served.
        async with connected(server.address) as connection:
            await abuse(connection)
            await server.answers_strangers()


async def test_a_thousand_connections_that_say_nothing_cost_others_nothing(server: Served) -> None:
    async with server.unharmed(), AsyncExitStack() as stack:
        for _ in range(10):
            opened = [stack.enter_async_context(connected(server.address)) for _ in range(100)]
            await asyncio.gather(*opened)
        await server.answers_strangers()


async def test_headers_that_never_end_are_bounded(server: Served) -> None:
    fields = http2.block(http2.request(CALLER, [("authorization", "Bearer x")]))
    async with server.unharmed(), AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connected(server.address)) for _ in range(50)]
        for connection in slow:
            await connection.greet()
            await connection.send(http2.frame(http2.HEADERS, 0, 1, fields))
        await server.answers_strangers()
        # A flood of continuations: 40 × 1 KiB is above what a call's metadata may have.
        more = http2.block([("x-more", "v" * 1000)])
        for connection in slow[:5]:
            for _ in range(40):
                await connection.send(http2.frame(http2.CONTINUATION, 0, 1, more))
            await connection.send(http2.frame(http2.CONTINUATION, HEAD, 1))
        await server.answers_strangers()


async def test_calls_that_are_reset_at_once_leave_nothing_running(server: Served) -> None:
    """Rapid reset (CVE-2023-44487): a bounded flood of calls, each cancelled before its answer."""
    fields = http2.block(http2.request(CALLER, bearer(server.token())))
    cancel = (8).to_bytes(4, "big")
    async with server.unharmed():
        for _ in range(4):
            async with connected(server.address) as connection:
                await connection.greet()
                for stream in range(1, 1001, 2):
                    await connection.send(
                        http2.frame(http2.HEADERS, HEAD, stream, fields),
                        http2.frame(http2.DATA, http2.END_STREAM, stream, http2.message(b"")),
                        http2.frame(http2.RST_STREAM, 0, stream, cancel),
                    )
                await server.answers_strangers()


async def test_pings_without_end_end_the_connection(server: Served) -> None:
    async with server.unharmed(), connected(server.address) as connection:
        await connection.greet()
        for _ in range(500):
            await connection.send(http2.frame(http2.PING, 0, 0, b"12345678"))
        assert await connection.closed(10)


async def test_a_call_without_its_message_ends_with_its_connection(server: Served) -> None:
    fields = http2.block(http2.request(ECHO, bearer(server.token())))
    async with server.unharmed():
        for flags, tail in (
            (HEAD, b""),
            (HEAD, http2.frame(http2.DATA, 0, 1, http2.message(echo())[:7])),
            (HEAD | http2.END_STREAM, b""),
        ):
            async with connected(server.address) as connection:
                await connection.greet()
                await connection.send(http2.frame(http2.HEADERS, flags, 1, fields), tail)
                await server.answers_strangers()
