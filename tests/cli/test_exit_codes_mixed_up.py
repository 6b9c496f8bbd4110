"""A script that reads exit codes must never take one ending for another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placet import errors
from placet_server.cli.exit_code import ExitCode, code_of_error
from placet_server.cli.main import EPILOG
from tests.cli.support import CommandLine

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
REFUND = '{"order": "A-1001", "amount": "1.00"}'

CODES: list[tuple[type[errors.PlacetError], int]] = [
    (errors.RefusedError, 3),
    (errors.InvalidRequestError, 3),
    (errors.CursorExpiredError, 3),
    (errors.UnsupportedError, 3),
    (errors.FailedError, 4),
    (errors.ActionCancelled, 5),
    (errors.ExhaustedError, 6),
    (errors.AmbiguousError, 7),
    (errors.PendingError, 8),
    (errors.WaitingError, 13),
    (errors.ApprovalRequired, 13),
    (errors.InputRequired, 13),
    (errors.NotFoundError, 9),
    (errors.UnauthenticatedError, 10),
    (errors.PermissionDeniedError, 10),
    (errors.PolicyRefused, 10),
    (errors.NotEligible, 10),
    (errors.DeniedError, 14),
    (errors.ApprovalDenied, 14),
    (errors.ApprovalRevoked, 14),
    (errors.ApprovalExpired, 14),
    (errors.UnavailableError, 11),
    (errors.TransportError, 11),
    (errors.ConflictError, 12),
    (errors.DecisionConflict, 12),
    (errors.ServerFaultError, 70),
    (errors.PlacetError, 70),
]


@pytest.mark.parametrize(("kind", "code"), CODES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_error_of_the_sdk_has_its_code(kind: type[errors.PlacetError], code: int) -> None:
    assert code == code_of_error(kind("said", code="UNKNOWN"))


def test_no_error_of_the_sdk_was_forgotten() -> None:
    found, open_classes = set(), [errors.PlacetError]
    while open_classes:
        found.add(kind := open_classes.pop())
        open_classes += kind.__subclasses__()
    own = {kind for kind in found if kind.__module__ == errors.__name__}
    assert own == {kind for kind, _ in CODES}


def test_the_documented_table_is_the_one_in_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert {(int(number), name) for number, name in rows} == {(code.value, code.name) for code in ExitCode}


def test_the_help_lists_the_codes_of_outcomes() -> None:
    listed = {int(number) for number in re.findall(r"(?:^|\s)(\d+) [a-z]", EPILOG)}
    assert {code.value for code in ExitCode} - {ExitCode.BROKEN_PIPE} == listed


def test_endings_of_real_calls_have_their_codes(cli: CommandLine) -> None:
    assert 0 == cli("call", "orders.lookup", '{"order": "A-1001"}').code
    assert 3 == cli("call", "orders.lookup", '{"order": 7}').code
    assert 3 == cli("call", "orders.lookup", '{"order": "A-1001",}').code
    assert 4 == cli("call", "orders.lookup", '{"order": "A-9"}').code
    assert 9 == cli("call", "no.such", "{}").code
    assert 9 == cli("show", "00000000-0000-7000-8000-000000000000").code
    assert 0 == cli("call", "payments.refund", REFUND, "--key", "codes").code
    assert 12 == cli("call", "payments.refund", REFUND.replace("1.00", "2.00"), "--key", "codes").code
    assert 5 == cli("call", "reports.export", '{"pause_seconds": 30}', "--timeout", "1.5").code


def test_a_wrong_token_is_forbidden(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACET_TOKEN", "x" * 43)
    ended = cli("whoami", "--json")
    assert (10, "UNAUTHENTICATED") == (ended.code, ended.document["error"]["reason"])


def test_nobody_there_is_unavailable(lone_cli: CommandLine) -> None:
    ended = lone_cli("call", "orders.lookup", "{}", "--target", "127.0.0.1:1", "--timeout", "500ms")
    assert 11 == ended.code
    assert "same --key" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("call",),
        ("no-such-command",),
        ("ls", "--limit", "0"),
        ("ls",),
        ("show", "xyz", "--target", "127.0.0.1:1"),
        ("call", "a.b", "{}", "--timeout", "soon"),
        ("call", "a.b", "{}", "--detach", "--stream"),
        ("call", "a.b", "@no-such-file"),
        ("call", "a.b", "{}", "--label", "nothing", "--target", "127.0.0.1:1"),
        ("ls", "--state", "gone", "--target", "127.0.0.1:1"),
        ("migrate",),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], lone_cli: CommandLine) -> None:
    ended = lone_cli(*arguments)
    assert (2, "") == (ended.code, ended.out)
    assert ended.err
