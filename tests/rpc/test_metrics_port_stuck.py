"""/metrics goes on answering Prometheus, whoever else holds its connections, and answers nothing else."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from placet_server.telemetry import exposition
from placet_server.telemetry.exposition import MetricsPort, registry_of
from placet_server.telemetry.metric import Metrics


@pytest.fixture
def opened() -> Iterator[Callable[..., MetricsPort]]:
    ports = []

    def open_port(host: str = "127.0.0.1") -> MetricsPort:
        metrics = Metrics()
        metrics.flush_items.of().observe(3)
        metrics.refusals.add("OVERLOADED")
        ports.append(MetricsPort(registry_of(metrics), host, 0))
        ports[-1].start()
        return ports[-1]

    yield open_port
    for port in ports:
        port.close()


def get(port: MetricsPort, path: str = "/metrics", *, accept: str = "", host: str = "127.0.0.1") -> str:
    request = urllib.request.Request(f"http://{host}:{port.port}{path}", headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def test_metrics_are_served_on_their_port_and_nothing_else_is(opened: Callable[..., MetricsPort]) -> None:
    port = opened()
    assert 'placet_flush_items_bucket{le="4.0"} 1.0' in get(port)
    assert 'placet_refusals_total{reason="OVERLOADED"} 1.0' in get(port)
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(port, "/")
    assert 404 == caught.value.code
    caught.value.close()


def test_whoever_asks_for_openmetrics_gets_it(opened: Callable[..., MetricsPort]) -> None:
    text = get(opened(), accept="application/openmetrics-text; version=1.0.0")
    parse: Any = text_string_to_metric_families
    names = {family.name for family in parse(text)}
    assert {"placet_flush_items", "placet_refusals"} <= names


def test_metrics_are_served_on_an_ipv6_address(opened: Callable[..., MetricsPort]) -> None:
    try:
        port = opened("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert "placet_flush_items_sum 3.0" in get(port, host="[::1]")


def test_a_request_that_trickles_is_cut_off_as_a_whole(
    opened: Callable[..., MetricsPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "REQUEST_SECONDS_MAX", 0.2)
    port = opened()
    with socket.create_connection(("127.0.0.1", port.port), timeout=10) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert b"" == slow.recv(1)
    assert "placet_flush_items_sum 3.0" in get(port)


def test_too_many_connections_are_turned_away_and_the_rest_are_served_again(
    opened: Callable[..., MetricsPort],
) -> None:
    port = opened()
    held = [
        socket.create_connection(("127.0.0.1", port.port), timeout=10)
        for _ in range(exposition.REQUESTS_AT_ONCE_MAX)
    ]
    with socket.create_connection(("127.0.0.1", port.port), timeout=10) as refused:
        assert b"" == refused.recv(1)
    for connection in held:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    answers = [connection.makefile("rb").read() for connection in held]
    assert all(answer.startswith(b"HTTP/1.0 200") for answer in answers)
    for connection in held:
        connection.close()
