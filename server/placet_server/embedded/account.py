"""The user Postgres runs as: ours, or an unprivileged one when we are root, as Postgres refuses root."""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from placet_server.embedded.error import FolderUnreachable

UNPRIVILEGED_USER = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user to run Postgres as. ``switch`` says that it is not the current one."""

    user_id: int
    group_id: int
    name: str
    switch: bool

    def own(self, path: Path) -> None:
        """Give a file or folder that we have just made to this user."""
        if self.switch:
            os.chown(path, self.user_id, self.group_id)

    def blocked_by(self, folder: Path) -> Path | None:
        """The first folder on the way to ``folder``, itself included, that this user cannot enter."""
        if not self.switch:
            return None
        folder = folder.resolve()
        return next((step for step in (*reversed(folder.parents), folder) if not self._enters(step)), None)

    def require_reach(self, folder: Path) -> None:
        """Raises FolderUnreachable unless this user can enter ``folder``."""
        blocker = self.blocked_by(folder)
        if blocker is not None:
            raise FolderUnreachable(folder, blocker, self.name)

    def _enters(self, folder: Path) -> bool:
        status = folder.stat()
        if status.st_uid == self.user_id:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.group_id:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def choose(existing_data: Path) -> Account:
    """Ourselves; if we are root, the owner of existing data, else an unprivileged user."""
    if os.geteuid() != 0:
        return Account(user_id=os.geteuid(), group_id=os.getegid(), name=_name(os.geteuid()), switch=False)
    if existing_data.exists() and (status := existing_data.stat()).st_uid != 0:
        return Account(user_id=status.st_uid, group_id=status.st_gid, name=_name(status.st_uid), switch=True)
    entry = pwd.getpwnam(UNPRIVILEGED_USER)
    return Account(user_id=entry.pw_uid, group_id=entry.pw_gid, name=entry.pw_name, switch=True)


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
