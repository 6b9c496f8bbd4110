"""Go and Node.js for tests: whether they are here, and how their packages are made ready."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = os.environ.get("PLACET_REQUIRE_TOOLCHAINS") == "1"
# Command that prints a version → the oldest one that the packages' own files allow.
TOOLCHAINS = {"go version": (1, 26), "node --version": (20, 0)}
TYPESCRIPT = (ROOT / "generated/typescript", ROOT / "clients/typescript")


def need(print_version: str) -> None:
    """Skips where the toolchain is missing or too old, unless it is required."""
    oldest = TOOLCHAINS[print_version]
    command = print_version.split()
    if shutil.which(command[0]) is None:
        found = (0, 0)
    else:
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        version = re.search(r"(\d+)\.(\d+)", printed)
        assert version is not None, printed
        found = (int(version[1]), int(version[2]))
    if found < oldest:
        problem = f"needs {command[0]} {oldest[0]}.{oldest[1]} or newer"
        if REQUIRED:
            pytest.fail(problem)
        pytest.skip(problem)


def run(*command: str, folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert 0 == result.returncode, f"{command} in {folder}\n{result.stdout}\n{result.stderr}"


def install_node_packages() -> None:
    """What the lock files say; once, also when several test processes ask."""
    with alone("node"):
        for folder in TYPESCRIPT:
            installed = folder / "node_modules/.package-lock.json"
            locked = folder / "package-lock.json"
            if not installed.is_file() or installed.stat().st_mtime < locked.stat().st_mtime:
                run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)


@contextmanager
def alone(purpose: str) -> Iterator[None]:
    """One test process of this tree at a time."""
    tree = sha256(str(ROOT).encode()).hexdigest()[:16]
    with Path(tempfile.gettempdir(), f"placet-tests-{purpose}-{os.getuid()}-{tree}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
