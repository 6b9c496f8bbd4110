"""Handles to secrets: an operator's file says where each is. Agents name handles, and nobody but the client of a model
is given what they stand for.

    [credentials.openai]
    file = "/run/secrets/openai"
    tenants = ["acme"]

    [credentials.anthropic]
    env = "ANTHROPIC_API_KEY"

Without `tenants` any tenant's agents may name it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

VALUE_BYTES_MAX = 16 * 1024
CREDENTIALS_MAX = 1000
HIDDEN = "[secret]"
# Shorter ones would be found in words that have nothing to do with them; no provider's key is.
_SCRUBBED_LENGTH_MIN = 4


class CredentialMissing(Exception):
    """The handle is not known to this tenant, or its secret cannot be read. Says nothing of the secret."""


class Secret:
    """A value that no text, log or traceback shows by itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a secret is not written anywhere")


class Source(BaseModel):
    """Where a secret is."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    file: Path | None = None
    env: str | None = Field(None, min_length=1, max_length=256)

    @model_validator(mode="after")
    def _is_one(self) -> Source:
        if (self.file is None) == (self.env is None):
            raise ValueError("say one of file and env")
        return self

    def read(self) -> Secret:
        """As it is now, so that a secret is rotated by writing its file. Raises CredentialMissing."""
        if self.file is None:
            value = os.environ.get(self.env or "", "")
        else:
            try:
                with self.file.open("rb") as file:
                    content = file.read(VALUE_BYTES_MAX + 1)
                value = content.decode() if len(content) <= VALUE_BYTES_MAX else ""
            except (OSError, UnicodeDecodeError):
                value = ""
        value = value.strip()
        if not value or not value.isprintable():
            place = f"the file {self.file}" if self.file is not None else f"the variable {self.env}"
            raise CredentialMissing(f"{place} has no secret that can be used")
        return Secret(value)


class _Credential(Source):
    tenants: frozenset[str] | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    credentials: dict[str, _Credential] = Field(default_factory=dict, max_length=CREDENTIALS_MAX)


class Credentials:
    """What the operator's file says."""

    def __init__(self, sources: dict[str, _Credential]) -> None:
        self._sources = sources

    def secret(self, handle: str, tenant: str) -> Secret:
        """Raises CredentialMissing, in the same words for a handle of others as for one that nobody has."""
        found = self._sources.get(handle)
        if found is None or (found.tenants is not None and tenant not in found.tenants):
            raise CredentialMissing(f"there is no credential {handle!r} for this tenant")
        return found.read()

    def own(self, handle: str) -> Secret:
        """A model's own, as the operator's file of models has it. Raises CredentialMissing."""
        found = self._sources.get(handle)
        if found is None:
            raise CredentialMissing(f"there is no credential {handle!r}")
        return found.read()


def parse(document: dict[str, Any]) -> Credentials:
    """Of the file's document. Raises ValueError, without anything that stands in the file but its names."""
    try:
        return Credentials(_File.model_validate(document).credentials)
    except ValidationError as error:
        raise ValueError(problems_of(error)) from None


def problems_of(error: ValidationError) -> str:
    """Without values: one may be a secret that should not have been written there."""
    return "; ".join(
        f"{'.'.join(str(step) for step in each['loc'])}: {each['msg']}"
        for each in error.errors(include_input=False, include_context=False)
    )


def scrubbed(text: str, secrets: Iterable[Secret]) -> str:
    """The text without them, in the forms in which a provider or a library may give them back."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) < _SCRUBBED_LENGTH_MIN:
            continue
        forms = {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), quote_plus(value)}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
    return text
