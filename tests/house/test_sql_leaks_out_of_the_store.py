"""SQL lives in store/sql and store/migrations, nowhere else."""

from __future__ import annotations

import re

import pytest

from tests.house.source_tree import files, parse, python_files, strings_but_docstrings

SQL_FOLDERS = (
    "server/placet_server/store/sql/",
    "server/placet_server/store/migrations/",
    "tests/",
    "benchmarks/",
)
SQL_SNAPSHOTS = {"server/placet_server/store/schema.sql"}
STATEMENT = re.compile(
    r"""^\s*(?:--[^\n]*\n\s*)*(?:
        select\s+(?:\S.*\sfrom\s|\d|now\(|pg_|current_)
        | insert\s+into\s | update\s+[\w.]+\s+set\s | delete\s+from\s | with\s+\w+\s+as\s*\( | truncate\s
        | (?:create|alter|drop)\s+(?:table|index|unique|role|user|database|schema|function|extension)\b
        | (?:un)?listen\s+\w | notify\s+\w+\s*(?:,|$) | set\s+(?:local|session)\s
        | prepare\s+\w+\s*(?:\(|as\b) | lock\s+table\s | copy\s+\w+\s+(?:from|to)\s
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def test_no_python_string_is_a_statement() -> None:
    leaks = [
        f"{path}:{constant.lineno} {str(constant.value).strip()[:60]!r}"
        for path in python_files("server/", "clients/", "examples/")
        for constant in strings_but_docstrings(parse(path))
        if STATEMENT.match(str(constant.value))
    ]
    assert [] == leaks


def test_every_sql_file_is_in_a_folder_for_sql() -> None:
    stray = [path for path in files() if path.endswith(".sql") and not path.startswith(SQL_FOLDERS)]
    assert [] == [path for path in stray if path not in SQL_SNAPSHOTS]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "select id from actions",
        "\n  -- a purpose\n  INSERT INTO actions (id)",
        "UPDATE actions SET state = 'x'",
        "WITH due AS (",
        "LISTEN actions",
        "SET LOCAL statement_timeout = 1",
    ],
)
def test_a_statement_is_recognised(text: str) -> None:
    assert STATEMENT.match(text)


@pytest.mark.parametrize(
    "text", ["select an action", "Updates the set", "listening", "with a key", "create_time"]
)
def test_prose_is_not_taken_for_a_statement(text: str) -> None:
    assert not STATEMENT.match(text)
