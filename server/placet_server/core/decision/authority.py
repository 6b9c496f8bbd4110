"""Which roles and groups of a caller count when it decides: by its token, or by what the operator keeps elsewhere.

Never by anything in a request; and who is not known there has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from placet_server.model.caller import Caller
from placet_server.settings_file import SettingsFile

NAMES_MAX = 64
NAME_LENGTH_MAX = 128


class Authority(NamedTuple):
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class AuthoritySource(Protocol):
    async def of(self, caller: Caller) -> Authority:
        """Raises AuthorityUnavailable if it cannot be known now: then nothing is decided."""


class TokenAuthority:
    """As the token says, or whatever else the caller is known by."""

    async def of(self, caller: Caller) -> Authority:
        return Authority(caller.roles, caller.groups)


People = Mapping[tuple[str, str], Authority]


class FileAuthority:
    """As a settings file says, by tenant and subject."""

    def __init__(self, file: SettingsFile[People]) -> None:
        self._file = file

    async def of(self, caller: Caller) -> Authority:
        return self._file.current().get((caller.tenant, caller.subject), Authority())


def people_of(document: dict[str, Any]) -> People:
    """A table of tenants, each with a table of subjects, each with `roles` and `groups`. Raises ValueError."""
    people: dict[tuple[str, str], Authority] = {}
    for tenant, subjects in document.items():
        if not isinstance(subjects, dict):
            raise ValueError(f"{tenant} is a tenant, so it has tables of subjects")
        for subject, told in subjects.items():
            try:
                people[tenant, subject] = authority_of(told)
            except ValueError as error:
                raise ValueError(f"{tenant}.{subject}: {error}") from None
    return people


def authority_of(told: object) -> Authority:
    """`{"roles": […], "groups": […]}`, each of which may be missing. Raises ValueError."""
    if not isinstance(told, dict) or told.keys() - {"roles", "groups"}:
        raise ValueError("says roles and groups, and nothing else")
    return Authority(_names(told, "roles"), _names(told, "groups"))


def _names(told: dict[str, Any], member: str) -> tuple[str, ...]:
    names = told.get(member, [])
    if not isinstance(names, list) or len(names) > NAMES_MAX:
        raise ValueError(f"{member} is a list of at most {NAMES_MAX} names")
    if not all(isinstance(name, str) and 0 < len(name) <= NAME_LENGTH_MAX for name in names):
        raise ValueError(f"{member} has names of 1 to {NAME_LENGTH_MAX} characters")
    return tuple(sorted(set(names)))
