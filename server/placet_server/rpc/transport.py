"""What grpc itself is told: address, TLS, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from placet_server.config import Config, ConfigRefused

# Pings of a client at this pace are no abuse.
_PING_INTERVAL_MS_MIN = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How the main port is served."""

    address: str
    reuse_port: bool
    receive_bytes_max: int
    metadata_bytes_max: int
    streams_per_connection_max: int
    keepalive_seconds: float
    keepalive_timeout_seconds: float
    connection_age_seconds: float
    connection_age_grace_seconds: float
    credentials: grpc.ServerCredentials | None
    reflection: bool

    def options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.so_reuseport", int(self.reuse_port)),
            ("grpc.max_receive_message_length", self.receive_bytes_max),
            ("grpc.max_metadata_size", self.metadata_bytes_max),
            ("grpc.absolute_max_metadata_size", self.metadata_bytes_max),
            ("grpc.max_concurrent_streams", self.streams_per_connection_max),
            ("grpc.keepalive_time_ms", _milliseconds(self.keepalive_seconds)),
            ("grpc.keepalive_timeout_ms", _milliseconds(self.keepalive_timeout_seconds)),
            # What grpc 1.85 goes by: it arms no keepalive timeout below this one, which is a minute unless said.
            ("grpc.http2.ping_timeout_ms", _milliseconds(self.keepalive_timeout_seconds)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_INTERVAL_MS_MIN),
            ("grpc.max_connection_age_ms", _milliseconds(self.connection_age_seconds)),
            ("grpc.max_connection_age_grace_ms", _milliseconds(self.connection_age_grace_seconds)),
        ]


def transport_of(config: Config) -> Transport:
    """Raises ConfigRefused for a TLS file that cannot be read."""
    return Transport(
        address=address_of(config.host, config.port),
        reuse_port=config.reuse_port,
        receive_bytes_max=config.receive_bytes_max,
        metadata_bytes_max=config.metadata_bytes_max,
        streams_per_connection_max=config.streams_per_connection_max,
        keepalive_seconds=config.keepalive_seconds,
        keepalive_timeout_seconds=config.keepalive_timeout_seconds,
        connection_age_seconds=config.connection_age_seconds,
        connection_age_grace_seconds=config.connection_age_grace_seconds,
        credentials=_credentials(config),
        reflection=config.reflection,
    )


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _credentials(config: Config) -> grpc.ServerCredentials | None:
    if config.tls_certificate_file is None or config.tls_private_key_file is None:
        return None
    pair = (_read(config.tls_private_key_file), _read(config.tls_certificate_file))
    authorities = None if config.tls_client_ca_file is None else _read(config.tls_client_ca_file)
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigRefused(f"{path}: {error.strerror}") from error


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), 2**31 - 1)
