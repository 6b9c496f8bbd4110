"""The main port of several processes: found free, and held until they all have ended.

A socket that is bound and never listens gets no connection, and keeps the number from everybody else."""

from __future__ import annotations

import socket

from placet_server.config import ConfigRefused
from placet_server.rpc.server import PortTaken
from placet_server.rpc.transport import address_of


def reserve(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """`is_shared`: others may listen there, too. Raises ConfigRefused if the port cannot be had."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigRefused("PLACET_PROCESSES: this system cannot share a port between processes")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if port != 0 and not is_shared:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        held = socket.socket(family, kind, protocol)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except OSError as error:
        raise ConfigRefused(str(PortTaken(address_of(host, port)))) from error
    return held
