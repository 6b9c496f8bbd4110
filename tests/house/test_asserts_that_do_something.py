"""An assert is left out where Python runs with -O, and with it all that it does."""

from __future__ import annotations

import ast

from tests.house.source_tree import parse, python_files


def test_no_assert_awaits_or_assigns() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in python_files("server/", "clients/", "examples/", "tools/", "benchmarks/")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Assert)
        and any(isinstance(below, ast.Await | ast.NamedExpr) for below in ast.walk(node.test))
    ]
    assert [] == found
