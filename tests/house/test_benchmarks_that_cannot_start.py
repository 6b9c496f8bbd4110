"""Each benchmark starts as its documentation says, and its folder hides no module of Python from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]
# As `python benchmarks/x.py --help`, and then what any of its libraries may import.
PROGRAM = """
import runpy, sys
script = sys.argv[1]
sys.path[0] = script.rpartition("/")[0]
sys.argv = [script, "--help"]
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as end:
    import queue
    queue.SimpleQueue
    sys.exit(end.code)
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_tells_how_it_is_used_and_finds_pythons_own_modules(script: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert f"usage: {script.name}" in done.stdout
