"""A server that is killed finds its port again: nobody who connects meanwhile is given it to connect from."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from placet.testing import port
from placet.testing.port import free_port

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not GIVEN.exists(), reason="only Linux tells")
def test_no_port_is_one_that_the_system_gives_away() -> None:
    first, last = map(int, GIVEN.read_text().split())
    assert set(port.PORTS).isdisjoint(range(first, last + 1))
    assert {free_port() for _ in range(20)} <= set(port.PORTS)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        free = free_port()
        monkeypatch.setattr(random, "sample", lambda *_: [number, free])
        assert free == free_port()
        monkeypatch.setattr(random, "sample", lambda *_: [number])
        with pytest.raises(OSError, match="is free"):
            free_port()
