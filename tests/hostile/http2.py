"""HTTP/2 (RFC 9113) by hand, for what no client library sends. Header fields are literals without Huffman coding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
Fields = Iterable[tuple[str, bytes | str]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def block(fields: Fields) -> bytes:
    """RFC 7541, 6.2.2: literal, not indexed, new name."""
    encoded = b""
    for name, value in fields:
        raw = value if isinstance(value, bytes) else value.encode()
        encoded += b"\x00" + _length(len(name)) + name.encode() + _length(len(raw)) + raw
    return encoded


def request(path: str, more: Fields = ()) -> list[tuple[str, bytes | str]]:
    """The fields of a gRPC call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]


def message(raw: bytes) -> bytes:
    """As a gRPC call carries it."""
    return b"\x00" + len(raw).to_bytes(4, "big") + raw


class Connection:
    """A TCP connection that says what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *parts: bytes) -> None:
        """Quietly stops when the server has closed the connection."""
        with suppress(ConnectionError):
            self._writer.write(b"".join(parts))
            await self._writer.drain()

    async def greet(self) -> None:
        await self.send(PREFACE, frame(SETTINGS, 0, 0))

    async def frames(self, seconds: float) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of all frames until the connection or its first stream ends."""
        seen = []
        with suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    head = await self._reader.readexactly(9)
                    payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                    kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                    seen.append((kind, flags, stream, payload))
                    if kind == RST_STREAM or (stream and flags & END_STREAM):
                        return seen
        return seen

    async def closed(self, seconds: float) -> bool:
        """Whether the server closes within this time, whatever it still says."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(65536):
                    pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _length(length: int) -> bytes:
    """RFC 7541, 5.1, with a prefix of seven bits and no Huffman bit."""
    if length < 127:
        return bytes((length,))
    length -= 127
    encoded = b"\x7f"
    while length >= 128:
        encoded += bytes((length % 128 + 128,))
        length //= 128
    return encoded + bytes((length,))
