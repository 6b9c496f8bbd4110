"""The TypeScript and Go stubs build and work in their own toolchains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.source_tree import ROOT

REQUIRED = os.environ.get("PLACET_REQUIRE_TOOLCHAINS") == "1"
# Command that prints a version → the oldest one that the packages' own files allow.
TOOLCHAINS = {"go version": (1, 26), "node --version": (20, 0)}

pytestmark = pytest.mark.timeout(300)


def _need(print_version: str) -> None:
    oldest = TOOLCHAINS[print_version]
    command = print_version.split()
    if shutil.which(command[0]) is None:
        found = (0, 0)
    else:
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        version = re.search(r"(\d+)\.(\d+)", printed)
        assert version is not None, printed
        found = (int(version[1]), int(version[2]))
    if found < oldest and not REQUIRED:
        pytest.skip(f"needs {command[0]} {oldest[0]}.{oldest[1]} or newer")


def _run(*command: str, folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert 0 == result.returncode, f"{command} in {folder}\n{result.stdout}\n{result.stderr}"


def test_the_go_stubs_build_and_their_tests_pass() -> None:
    _need("go version")
    _run("go", "vet", "./...", folder=ROOT / "generated/go")
    _run("go", "test", "./...", folder=ROOT / "clients/go")


def test_the_typescript_stubs_type_check_and_their_tests_pass() -> None:
    _need("node --version")
    for folder in (ROOT / "generated/typescript", ROOT / "clients/typescript"):
        if not (folder / "node_modules").is_dir():
            _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    _run("npm", "run", "check", folder=ROOT / "clients/typescript")
    _run("npm", "test", folder=ROOT / "clients/typescript")
