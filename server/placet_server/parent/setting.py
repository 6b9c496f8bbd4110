"""A configuration as environment variables, so that a child reads what the parent was given."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from placet_server.config import Config


def variables_of(config: Config) -> dict[str, str]:
    """What `load_config` makes the same configuration of."""
    return {
        f"PLACET_{name.upper()}": _text(value)
        for name in Config.model_fields
        if (value := getattr(config, name)) is not None
    }


def child_environment(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with this configuration instead of its own."""
    own = {f"PLACET_{name.upper()}" for name in Config.model_fields}
    return {name: value for name, value in environment.items() if name not in own} | variables_of(config)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value.value if isinstance(value, Enum) else value)
