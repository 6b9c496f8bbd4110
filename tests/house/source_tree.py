"""The files of the work tree as git sees them: tracked, or new and not ignored."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("generated/", "third_party/")


@cache
def files() -> tuple[str, ...]:
    """Paths relative to ROOT, sorted; files deleted but not yet committed are left out."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(path for path in set(listing.stdout.split("\0")) if path and (ROOT / path).is_file()))


def python_files(*folders: str) -> list[str]:
    """Hand-written modules, optionally only those below the given folders."""
    own = [path for path in files() if path.endswith(".py") and not path.startswith(FOREIGN)]
    return [path for path in own if path.startswith(folders)] if folders else own


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def parse(path: str) -> ast.Module:
    return ast.parse(read(path), filename=path)


def strings_but_docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """String constants, also the fixed parts of f-strings; a docstring is a statement by itself."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def imported_modules(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each absolute import as (dotted name, line); `from a import b` gives `a.b`, be b a module or a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
