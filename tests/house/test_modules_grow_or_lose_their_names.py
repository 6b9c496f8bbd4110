"""Size, names and emptiness of modules."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from tests.house.source_tree import parse, python_files, read

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
BANNED_WORDS = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
# The packages that users import from, and so the only ones that say what is public.
PUBLIC_PACKAGES = {"clients/python/placet/__init__.py", "clients/python/placet/testing/__init__.py"}


def test_no_module_is_longer_than_the_hard_limit() -> None:
    lengths = {path: len(read(path).splitlines()) for path in python_files()}
    assert {} == {path: lines for path, lines in lengths.items() if lines > MODULE_LINES_MAX}


def test_no_function_is_longer_than_the_hard_limit() -> None:
    long = {}
    for path in python_files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long[f"{path}:{node.lineno} {node.name}"] = lines
    assert {} == long


def test_no_module_or_folder_has_a_name_that_says_nothing() -> None:
    named = [
        path
        for path in python_files()
        for part in PurePosixPath(path).with_suffix("").parts
        if BANNED_WORDS & set(re.split(r"[_.]", part.lower()))
    ]
    assert [] == named


def test_every_init_module_is_empty_or_a_docstring() -> None:
    busy = [
        path
        for path in python_files()
        if path.endswith("/__init__.py") and path not in PUBLIC_PACKAGES and not _only_docstring(parse(path))
    ]
    assert [] == busy


def test_every_package_folder_has_an_init_module() -> None:
    packaged = python_files("server/placet_server/", "clients/python/placet/")
    inits = {str(PurePosixPath(path).parent / "__init__.py") for path in packaged}
    assert set() == inits - set(packaged)


def _only_docstring(tree: ast.Module) -> bool:
    return len(tree.body) == (0 if ast.get_docstring(tree) is None else 1)
