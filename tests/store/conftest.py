"""Data folders, and small disks."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import lay_out


@pytest.fixture
def data_folder(open_folder: Path) -> Path:
    """Of an embedded Postgres that has been started before."""
    lay_out(open_folder / "data", "embedded")
    return open_folder / "data"


@pytest.fixture
def small_disk(request: pytest.FixtureRequest, open_folder: Path) -> Iterator[Path]:
    """A disk of as many megabytes as the parameter says."""
    options = f"size={request.param}m,mode=755"
    mount = ["mount", "-t", "tmpfs", "-o", options, "placet-test", str(open_folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a small disk here")
    yield open_folder
    subprocess.run(["umount", str(open_folder)], check=True)
