"""What an action waits for, and which command decides it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placet_server.cli.escape import escape


def wait_lines(waits: Iterable[dict[str, Any]]) -> list[str]:
    """Of waits as documents: a line for what is asked, one for what decides it. Escaped."""
    from placet_server.cli.approval import time_left

    lines = []
    for wait in waits:
        step = f"step {wait['step_path']}: " if wait["step_path"] else ""
        until = f"; that ends {time_left(wait['expire_time'])}" if wait["expire_time"] else ""
        lines.append(escape(f"waits for     {step}{wait['title']}{until}"))
        lines.append(f"decided by    {command_of(wait)}")
    return lines


def command_of(wait: dict[str, Any]) -> str:
    """For somebody who may."""
    approval_id = wait["approval_id"]
    decide = f"placet answer {approval_id}" if wait["kind"] == "INPUT" else f"placet approve {approval_id}"
    return f"placet show {approval_id}, then {decide}"
