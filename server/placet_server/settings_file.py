"""A TOML file of the operator's that may change while the server runs: who may what, how much of it, who is told."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

T = TypeVar("T")

BYTES_MAX = 4 * 2**20
LOOK_SECONDS = 1.0

log = logging.getLogger("placet.settings")


class SettingsFileRefused(Exception):
    """What is in the file cannot be meant. The text is for the operator, and names the file."""


class SettingsFile(Generic[T]):
    """What `parse` makes of the file's document, as it stands: a change is seen within two seconds, once the file has
    been left alone for one. What is being written may be good TOML and say less, or nothing.

    A change that cannot be read, or is refused, leaves in force what was before it, and is logged once: half a file, as
    an editor may leave it for a moment, must not open or close anything."""

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], T]) -> None:
        """`parse` raises ValueError with what is wrong. Raises SettingsFileRefused: a server does not start with it."""
        self._path = path
        self._parse = parse
        self._looked_at = monotonic()
        self._complaint = ""
        self._looked: tuple[int, ...] = ()
        self._stamp, self._current = self._read()

    @property
    def problem(self) -> str:
        """Of the file as it was last looked at; empty: what is in it is in force."""
        return self._complaint

    def current(self) -> T:
        now = monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._look()
        return self._current

    def _look(self) -> None:
        try:
            stamp = _stamp_of(os.stat(self._path))
            before, self._looked = self._looked, stamp
            if stamp == self._stamp:
                self._complaint = ""
                return
            if stamp != before:
                return
            self._stamp, self._current = self._read()
        except SettingsFileRefused as error:
            self._complain(str(error))
        except OSError as error:
            self._complain(f"{self._path}: {error.strerror}")
        else:
            log.info("%s was read again", self._path)
            self._complaint = ""

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            log.error("%s; what was there before stays in force", complaint)

    def _read(self) -> tuple[tuple[int, ...], T]:
        """Raises SettingsFileRefused."""
        try:
            with self._path.open("rb") as file:
                stamp = _stamp_of(os.fstat(file.fileno()))
                content = file.read(BYTES_MAX + 1)
            if len(content) > BYTES_MAX:
                raise ValueError(f"more than {BYTES_MAX} bytes")
            return stamp, self._parse(tomllib.loads(content.decode()))
        except OSError as error:
            raise SettingsFileRefused(f"{self._path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise SettingsFileRefused(f"{self._path}: {error}") from error


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino
