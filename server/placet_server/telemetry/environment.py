"""What the standard OTEL_* variables ask for, told without importing what does it."""

from __future__ import annotations

import os


class ProtocolRefused(Exception):
    """OTEL_EXPORTER_OTLP_PROTOCOL names another protocol than grpc."""


def wanted(signal: str) -> bool:
    """Whether the environment asks to export `TRACES` or `METRICS`. Raises ProtocolRefused."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if exporter == "none" or (not exporter and not any(os.environ.get(name) for name in endpoints)):
        return False
    protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol not in (None, "", "grpc"):
        raise ProtocolRefused(f"OTLP by {protocol} is not supported; set OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
    return True
