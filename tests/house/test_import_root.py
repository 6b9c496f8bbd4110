"""`placet` is one import root over SDK and stubs: in a wheel, an editable install and for mypy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IMPORTS = """
import placet, placet_server
from buf.validate import validate_pb2
from placet.v1 import error_reason_pb2, runtime_service_pb2_grpc
for module in (placet, placet_server, validate_pb2, error_reason_pb2, runtime_service_pb2_grpc):
    print(module.__file__)
"""

TYPED = """
from placet.v1 import error_reason_pb2, runtime_service_pb2_grpc
import placet
reveal_type(error_reason_pb2.ERROR_REASON_UNSPECIFIED)
reveal_type(runtime_service_pb2_grpc.RuntimeServiceStub.Execute)
"""


class Environment:
    """A virtual environment that sees this one's packages, but after its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = folder / "lib" / version / "site-packages"
        (self.site_packages / "zz_dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def install(self, *arguments: str) -> None:
        options = ["--no-deps", "--no-build-isolation", *arguments]
        uv = shutil.which("uv")
        if uv:
            command = [uv, "pip", "install", "--quiet", "--python", str(self.python), *options]
        else:
            command = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(self.python),
                "install",
                "--quiet",
                *options,
            ]
        _run(command, cwd=ROOT)

    def imported_files(self) -> list[Path]:
        lines = _run([str(self.python), "-c", IMPORTS], cwd=self.folder).splitlines()
        return [Path(line) for line in lines]

    def mypy(self, cache: Path) -> str:
        options = ("--strict", "--python-executable", str(self.python))
        return _run_mypy(cache, *options, "-c", TYPED, cwd=self.folder)


@pytest.fixture(scope="module")
def wheel_install(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("wheel")
    _run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
    )
    environment = Environment(folder / "venv")
    environment.install(str(next(folder.glob("*.whl"))))
    return environment


@pytest.fixture(scope="module")
def editable_install(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("editable") / "venv")
    environment.install("--editable", str(ROOT))
    return environment


def test_a_wheel_install_imports_sdk_stubs_and_server_from_itself(wheel_install: Environment) -> None:
    assert [
        wheel_install.site_packages / name
        for name in (
            "placet/__init__.py",
            "placet_server/__init__.py",
            "buf/validate/validate_pb2.py",
            "placet/v1/error_reason_pb2.py",
            "placet/v1/runtime_service_pb2_grpc.py",
        )
    ] == wheel_install.imported_files()


def test_a_wheel_holds_every_sql_file_and_typing_marker(wheel_install: Environment) -> None:
    folders = {"server": "placet_server", "clients/python": "placet", "generated/python": "placet"}
    for source, package in folders.items():
        for pattern in ("*.sql", "py.typed"):
            for path in (ROOT / source / package).rglob(pattern):
                assert (wheel_install.site_packages / path.relative_to(ROOT / source)).is_file(), path


def test_an_editable_install_imports_sdk_stubs_and_server_from_the_work_tree(
    editable_install: Environment,
) -> None:
    assert [
        ROOT / "clients/python/placet/__init__.py",
        ROOT / "server/placet_server/__init__.py",
        ROOT / "generated/python/buf/validate/validate_pb2.py",
        ROOT / "generated/python/placet/v1/error_reason_pb2.py",
        ROOT / "generated/python/placet/v1/runtime_service_pb2_grpc.py",
    ] == editable_install.imported_files()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy knows of Python and of dependencies, which are the same for all."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("install", ["wheel_install", "editable_install"])
def test_mypy_types_the_stubs_of_an_install(
    install: str, cache: Path, request: pytest.FixtureRequest
) -> None:
    _assert_typed(request.getfixturevalue(install).mypy(cache))


def test_mypy_types_the_stubs_in_the_work_tree(tmp_path: Path) -> None:
    """By the options of the work tree's own check, and so with what that may have found out about the same files."""
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    _assert_typed(_run_mypy(ROOT / ".mypy_cache", "--config-file", "pyproject.toml", str(program), cwd=ROOT))


def _assert_typed(output: str) -> None:
    assert "Success: no issues found" in output
    assert "error_reason_pb2._ErrorReason.ValueType" in output
    assert "runtime_service_pb2.ExecuteResponse" in output


def _run_mypy(cache: Path, *arguments: str, cwd: Path) -> str:
    return _run([sys.executable, "-m", "mypy", "--cache-dir", str(cache), *arguments], cwd=cwd)


def _run(command: list[str], cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout
