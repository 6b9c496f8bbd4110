"""Who starts a server or changes its schema is told why the store does not do, and what to set."""

from __future__ import annotations

import pytest

from placet.testing.port import free_port
from tests.cli.support import run_process

SERVE = ("serve", "--port", "0", "--health-port", "0")
MIGRATE = ("migrate",)


@pytest.mark.parametrize("command", [SERVE, MIGRATE], ids=lambda command: command[0])
def test_why_a_store_does_not_answer_is_said(command: tuple[str, ...]) -> None:
    dsn = f"postgresql://placet@127.0.0.1:{free_port()}/placet"
    ended = run_process(
        *command,
        "--json",
        PLACET_DSN=dsn,
        PLACET_IDENTITY_DEV="true",
        PLACET_STORE_WAIT_SECONDS="0",
    )
    error = ended.document["error"]
    assert (11, 11, "STORE_UNAVAILABLE") == (ended.code, error["exit_code"], error["kind"])
    assert error["message"].startswith("the store does not answer: ConnectionRefusedError: ")
    assert "same request" not in ended.err


@pytest.mark.parametrize("command", [SERVE, MIGRATE], ids=lambda command: command[0])
def test_what_is_no_address_of_a_store_is_refused_and_no_fault_of_ours(command: tuple[str, ...]) -> None:
    ended = run_process(*command, PLACET_DSN="db.example/placet", PLACET_IDENTITY_DEV="true")
    assert (3, "") == (ended.code, ended.out)
    assert ended.err.startswith("placet: the DSN is no address of a Postgres: postgresql://USER:PASSWORD@")
