"""Who is told of what: an operator's file in TOML.

    [[targets]]
    tenant = "acme"
    name = "desk"
    url = "https://desk.example/placet"
    types = ["dev.placet.approval.*"]
    secrets = [{ file = "/run/secrets/desk" }, { env = "DESK_SECRET_OLD" }]
    headers = { x-team = "payments", authorization = { file = "/run/secrets/desk-token" } }

Secrets are never in it: it says in which file or environment variable they are. It is read again together with them,
so that a secret is rotated by writing its file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from placet.webhooks import key_of
from placet_server.model.callback import CALLBACK_TYPES, Target, covers
from placet_server.outbound.address import HostRefused, HostRules
from placet_server.outbound.http import UrlRefused, url_of

FILE_BYTES_MAX = 2**20
VALUE_BYTES_MAX = 4096
TARGETS_MAX = 1000
OF_TENANT_MAX = 64
SECRETS_MAX = 4
HEADERS_MAX = 16
TYPES_MAX = 32
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VALUE = re.compile(r"[\x20-\x7e]{1,4096}")
_OURS = re.compile(
    r"webhook-.*|content-.*|ce-.*|host|connection|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*|user-agent"
)


class TargetsRefused(Exception):
    """`problems`, each for whoever wrote the file."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _From(_Written):
    file: Path | None = None
    env: str | None = Field(None, min_length=1, max_length=256)

    @model_validator(mode="after")
    def _is_one(self) -> _From:
        if (self.file is None) == (self.env is None):
            raise ValueError("say one of file and env")
        return self


class _Target(_Written):
    tenant: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    url: str
    types: list[str] = Field(min_length=1, max_length=TYPES_MAX)
    secrets: list[_From] = Field(min_length=1, max_length=SECRETS_MAX)
    headers: dict[str, str | _From] = Field(default_factory=dict, max_length=HEADERS_MAX)


class _File(_Written):
    targets: list[_Target] = Field(default_factory=list, max_length=TARGETS_MAX)


class TargetFile:
    """`read_if_changed` is called by one thread at a time."""

    def __init__(self, path: Path, rules: HostRules) -> None:
        self._path = path
        self._rules = rules
        # What was read the last time, by path; None: it could not be.
        self._seen: dict[Path, bytes | None] = {}
        self._looked: dict[Path, bytes | None] = {}

    def read(self) -> tuple[Target, ...]:
        """Raises TargetsRefused with everything that is wrong."""
        self._seen = {}
        problems: list[str] = []
        targets = tuple(self._read(problems))
        if problems:
            raise TargetsRefused(problems)
        return targets

    def read_if_changed(self) -> tuple[Target, ...] | None:
        """None: neither it nor any file that it names has changed, or they were not left alone since the last look:
        what is being written may be good TOML and name fewer targets, or none. Raises as `read`, once
        for each change.
        """
        content = {path: _content(path) for path in self._seen}
        before, self._looked = self._looked, content
        return None if content == self._seen or content != before else self.read()

    def _read(self, problems: list[str]) -> Iterator[Target]:
        written = self._parsed(problems)
        for problem in _doubles(written):
            problems.append(problem)
        for index, each in enumerate(written):
            told = _told(problems, f"targets[{index}] ({each.tenant}/{each.name})")
            secrets = [self._value(source, told, "secrets") for source in each.secrets]
            headers = [
                (name, source if isinstance(source, str) else self._value(source, told, f"headers.{name}"))
                for name, source in each.headers.items()
            ]
            target = Target(
                tenant=each.tenant,
                name=each.name,
                url=each.url,
                types=tuple(each.types),
                secrets=tuple(secret for secret in secrets if secret is not None),
                headers=tuple((name.lower(), value) for name, value in headers if value is not None),
            )
            self._check(target, told)
            yield target

    def _parsed(self, problems: list[str]) -> list[_Target]:
        content = self._seen[self._path] = _content(self._path)
        if content is None or len(content) > FILE_BYTES_MAX:
            problems.append(f"{self._path} cannot be read, or has more than {FILE_BYTES_MAX} bytes")
            return []
        try:
            return _File.model_validate(tomllib.loads(content.decode())).targets
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"{self._path} is no TOML: {error}")
        except ValidationError as error:
            # Not `input`: it may be what should not have been written there.
            problems += [
                f"{_place(each['loc'])}: {each['msg']}" for each in error.errors(include_input=False)
            ]
        return []

    def _value(self, source: _From, told: Callable[[str], None], what: str) -> str | None:
        if source.file is None:
            found = os.environ.get(source.env or "")
            if found is None:
                told(f"{what}: the environment has no {source.env}")
            return None if found is None else found.strip()
        path = self._path.parent / source.file
        content = self._seen[path] = _content(path)
        if content is None or len(content) > VALUE_BYTES_MAX:
            told(f"{what}: {path} cannot be read, or has more than {VALUE_BYTES_MAX} bytes")
            return None
        return content.decode("utf-8", "replace").strip()

    def _check(self, target: Target, told: Callable[[str], None]) -> None:
        try:
            url = url_of(target.url)
            self._rules.check(url.target, plaintext=url.is_plaintext)
        except (UrlRefused, HostRefused) as refused:
            told(f"url: {refused}")
        for pattern in target.types:
            if not any(covers(pattern, type_) for type_ in CALLBACK_TYPES):
                told(f"types: nothing is told that {pattern!r} means")
        for secret in target.secrets:
            try:
                key_of(secret)
            except ValueError as error:
                told(f"secrets: {error}")
        for name, value in target.headers:
            if not _HEADER.fullmatch(name) or _OURS.fullmatch(name):
                told(f"headers: {name!r} is no header that may be set")
            elif not _VALUE.fullmatch(value):
                told(f"headers: the value of {name} is not 1 to 4096 visible ASCII characters")


def _told(problems: list[str], where: str) -> Callable[[str], None]:
    return lambda problem: problems.append(f"{where}: {problem}")


def _doubles(written: list[_Target]) -> Iterator[str]:
    names = Counter((each.tenant, each.name) for each in written)
    for (tenant, name), count in names.items():
        if count > 1:
            yield f"{tenant}/{name} is there {count} times"
    for tenant, count in Counter(each.tenant for each in written).items():
        if count > OF_TENANT_MAX:
            yield f"{tenant} has {count} targets, and may have {OF_TENANT_MAX}"


def _content(path: Path) -> bytes | None:
    """No more than is needed to see that it is too much."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None


def _place(steps: tuple[Any, ...]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "the file"
