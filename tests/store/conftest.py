"""Folders that the unprivileged user of an embedded Postgres can enter, as pytest's own are closed to it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import lay_out


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="placet-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


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
