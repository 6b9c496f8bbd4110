"""Ports for servers that come back: whoever connects to one that is away could be given its very port to connect from,
and keep it.
"""

from __future__ import annotations

import random
import socket

# Below those that systems give to whoever connects.
PORTS = range(20_000, 32_000)
TRIES_MAX = 100


def free_port() -> int:
    """On 127.0.0.1, where nobody listens now, and which no system gives to a connection. Raises OSError."""
    for port in random.sample(PORTS, TRIES_MAX):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"none of {TRIES_MAX} ports from {PORTS.start} to {PORTS.stop} is free")
