"""Help that leaves its reader alone, or takes its time."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from placet_server.cli import main
from tests.cli.support import CommandLine


def _commands() -> list[tuple[str, ...]]:
    root = typer.main.get_command(main.cli)
    paths: list[tuple[str, ...]] = [()]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        paths.append((name,))
        paths += [(name, inner) for inner in getattr(command, "commands", {})]
    return paths


@pytest.mark.parametrize("path", _commands(), ids=lambda path: " ".join(path) or "placet")
def test_the_help_of_every_command_has_an_example_of_it(path: tuple[str, ...], lone_cli: CommandLine) -> None:
    shown = lone_cli(*path, "--help")

    assert 0 == shown.code
    examples = shown.out.partition("Examples:")[2]
    assert " ".join(("placet", *path)) in examples


def test_every_command_of_the_contract_is_there() -> None:
    words = (
        "ambiguous answer app approve ask call cancel capabilities chat claim connect dead deliveries demo deny dev "
        "explain health inbox ls migrate policy queues reconcile recover redrive release resolve resume revoke serve "
        "servers sessions show status submit version watch whoami withdraw"
    )
    of_policy = [f"policy {word}" for word in ("admit", "dry-run", "get", "list", "rollback", "validate")]
    of_others = ["app admit", "app check", "queues pause", "queues resume"]
    of_others += [f"sessions {word}" for word in ("close", "create", "resume", "show")]
    of_deliveries = [f"deliveries {word}" for word in ("list", "show", "redeliver")]
    wanted = sorted([*words.split(), *of_policy, *of_deliveries, *of_others])
    assert wanted == sorted(" ".join(path) for path in _commands() if path)


def test_help_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys; from placet_server.cli.main import run; code = run(['--help']); "
        "print([m for m in ('grpc', 'google.protobuf', 'rich', 'pydantic', 'asyncio') if m in sys.modules], code, "
        "file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[] 0" == shown.stderr.strip()
