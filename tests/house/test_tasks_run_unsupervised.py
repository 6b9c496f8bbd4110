"""Tasks live in a TaskGroup; only the supervisor may start one that outlives its caller."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.source_tree import parse, python_files

# Path → why this module may start a task by itself.
ALLOWED = {
    "clients/python/placet/supervisor.py": "it owns, bounds and awaits its tasks",
}
LOOP_NAME = re.compile(r"^_?(?:\w+_)?(?:loop|asyncio)$")


def test_no_bare_task_is_started_outside_the_supervisor() -> None:
    bare = [
        f"{path}:{node.lineno}"
        for path in python_files("server/", "clients/", "examples/")
        if path not in ALLOWED
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and _starts_bare_task(node.func)
    ]
    assert [] == bare


@pytest.mark.parametrize(
    "call",
    [
        "asyncio.create_task(f())",
        "create_task(f())",
        "self._loop.create_task(f())",
        "asyncio.ensure_future(f())",
    ],
)
def test_a_bare_task_is_recognised(call: str) -> None:
    assert _starts_bare_task(_called(call))


def test_a_task_of_a_group_is_not_bare() -> None:
    assert not _starts_bare_task(_called("group.create_task(f())"))


def _called(call: str) -> ast.expr:
    expression = ast.parse(call, mode="eval").body
    assert isinstance(expression, ast.Call)
    return expression.func


def _starts_bare_task(function: ast.expr) -> bool:
    match function:
        case ast.Name(id="create_task" | "ensure_future"):
            return True
        case ast.Attribute(attr="ensure_future"):
            return True
        case ast.Attribute(attr="create_task", value=ast.Name(id=owner) | ast.Attribute(attr=owner)):
            return bool(LOOP_NAME.match(owner))
        case ast.Attribute(attr="create_task", value=ast.Call()):
            return True
    return False
