"""A policy set from files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import bytes_of_file

if TYPE_CHECKING:
    from placet import PolicySet

_NAME_LENGTH_MAX = 64


def policy_set_of(file: str, name: str, overlays: str) -> PolicySet:
    """Raises Complaint for what cannot be read."""
    from placet import Overlay, PolicySet

    text = sys.stdin.buffer.read() if file == "-" else bytes_of_file(file, "the policies")
    try:
        cedar = text.decode()
    except UnicodeDecodeError as error:
        raise Complaint(f"the policies are not UTF-8 (byte {error.start})", ExitCode.REFUSED) from None
    stem = "policies" if file == "-" else Path(file).stem.lower()
    found = PolicySet(
        name or stem[:_NAME_LENGTH_MAX], cedar, [Overlay(**each) for each in _read_overlays(overlays)]
    )
    try:
        found.message()
    except ValueError as error:
        raise Complaint(f"--overlays: {error}") from None
    return found


def _read_overlays(file: str) -> list[dict[str, Any]]:
    if not file:
        return []
    try:
        read = json.loads(bytes_of_file(file, "the overlays"))
    except ValueError as error:
        raise Complaint(f"--overlays: {file} is not JSON: {error}") from None
    if not isinstance(read, list) or not all(isinstance(each, dict) and _fits(each) for each in read):
        raise Complaint(
            f"--overlays: {file} has to be an array of objects with pattern, hazards and approval"
        )
    return read


def _fits(overlay: dict[str, Any]) -> bool:
    hazards = overlay.get("hazards", [])
    return (
        overlay.keys() <= {"pattern", "hazards", "approval"}
        and isinstance(overlay.get("pattern"), str)
        and isinstance(overlay.get("approval", ""), str)
        and isinstance(hazards, list)
        and all(isinstance(word, str) for word in hazards)
    )
