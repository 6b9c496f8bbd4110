"""What an operator decides of connectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSettings:
    """`hosts` are what `outbound.address.HostRules` reads. Files' contents, PEM, or None.

    `accept_seconds`: for a connector to be reached, to have room and to accept. `grace_seconds`: for an answer after it
    was asked to stop. `late_seconds`: for one that counts although the attempt was given up, after its deadline."""

    hosts: tuple[str, ...] = ("loopback",)
    is_insecure: bool = False
    tls_ca: bytes | None = None
    certificate: bytes | None = None
    private_key: bytes | None = None
    keepalive_seconds: float = 10.0
    keepalive_timeout_seconds: float = 5.0
    describe_seconds: float = 5.0
    accept_seconds: float = 5.0
    grace_seconds: float = 4.0
    late_seconds: float = 60.0
    backoff_seconds_min: float = 0.1
    backoff_seconds_max: float = 5.0
