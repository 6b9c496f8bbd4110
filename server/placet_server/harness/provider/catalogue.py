"""Which models there are: an operator's file, or a list of names. A name that is not among them is refused; no other
model ever stands in for it.

    [models.fast]
    kind = "openai"
    model = "gpt-5-mini"
    credential = "openai"
    price = { input = "0.25", output = "2.00", cached_input = "0.025" }   # for a million tokens

    [models.ours]
    kind = "openai_compatible"
    model = "qwen3"
    base_url = "http://models.internal:8000/v1"
    headers = { x-team = "payments", authorization = { file = "/run/secrets/gateway" } }

Only the operator says where models are: an agent names one, and reaches nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from placet_server.harness.provider.answer import AgentsUnavailable
from placet_server.harness.provider.credential import Secret, Source, problems_of
from placet_server.model.agent import MAX_TOKENS_DEFAULT, REQUEST_TIMEOUT_SECONDS_DEFAULT
from placet_server.model.usage import MICROS, Price

MODELS_MAX = 1000
HEADERS_MAX = 16
LOCAL_MODEL = "placet-local"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
_TEXT = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\x20-\x7e]{1,4096}")


class Kind(StrEnum):
    OPENAI = "openai"
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"
    BEDROCK = "bedrock"
    MISTRAL = "mistral"
    OLLAMA = "ollama"
    OPENAI_COMPATIBLE = "openai_compatible"
    LOCAL = "local"


# Where a kind's models are, if the operator does not say it. Said to every client, so that no variable of the
# environment, which clients read by themselves, leads it elsewhere. None: the client knows, from the region.
ADDRESSES: Mapping[Kind, str | None] = {
    Kind.OPENAI: "https://api.openai.com/v1",
    Kind.OPENAI_RESPONSES: "https://api.openai.com/v1",
    Kind.ANTHROPIC: "https://api.anthropic.com",
    Kind.GOOGLE: "https://generativelanguage.googleapis.com",
    Kind.MISTRAL: "https://api.mistral.ai",
    Kind.OLLAMA: "http://127.0.0.1:11434/v1",
    Kind.BEDROCK: None,
    Kind.LOCAL: None,
}
VARIABLES: Mapping[Kind, str] = {
    Kind.OPENAI: "OPENAI_API_KEY",
    Kind.OPENAI_RESPONSES: "OPENAI_API_KEY",
    Kind.ANTHROPIC: "ANTHROPIC_API_KEY",
    Kind.GOOGLE: "GOOGLE_API_KEY",
    Kind.MISTRAL: "MISTRAL_API_KEY",
}
# Kinds that may be asked without a credential: open ones, and those whose client finds what the machine has.
OPEN_KINDS = frozenset({Kind.OLLAMA, Kind.OPENAI_COMPATIBLE, Kind.BEDROCK, Kind.LOCAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model. `credential`: its own handle, if the agent has none; `key`: where its secret is without a handle.
    `context_tokens`: 0: not known.
    """

    name: str
    kind: Kind
    model: str
    base_url: str | None = None
    credential: str = ""
    key: Source | None = None
    max_tokens: int = MAX_TOKENS_DEFAULT
    context_tokens: int = 0
    price: Price | None = None
    request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS_DEFAULT
    headers: tuple[tuple[str, str | Source], ...] = ()
    region: str | None = None


Amount = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=12, decimal_places=6)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Price(_Written):
    input: Amount
    output: Amount
    cached_input: Amount | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _is_exact(cls, value: object) -> object:
        if isinstance(value, float | bool):
            raise ValueError('write it as text, "0.25": a number would not be exact')
        return value

    def micros(self) -> Price:
        cached = self.input if self.cached_input is None else self.cached_input
        return Price(
            input_micros=int(self.input * MICROS),
            output_micros=int(self.output * MICROS),
            cached_micros=int(cached * MICROS),
        )


class _Model(_Written):
    kind: Kind
    model: str = Field(min_length=1, max_length=256)
    base_url: str | None = None
    credential: str = Field("", max_length=128)
    max_tokens: int = Field(MAX_TOKENS_DEFAULT, ge=1, le=1_000_000, strict=True)
    context_tokens: int = Field(0, ge=0, le=100_000_000, strict=True)
    price: _Price | None = None
    request_timeout_seconds: float = Field(REQUEST_TIMEOUT_SECONDS_DEFAULT, gt=0, le=3600, strict=True)
    headers: dict[str, str | Source] = Field(default_factory=dict, max_length=HEADERS_MAX)
    region: str | None = Field(None, pattern=r"^[a-z0-9-]{1,64}$")

    @field_validator("model", "base_url", "credential")
    @classmethod
    def _is_one_word(cls, value: str | None) -> str | None:
        if value and not _TEXT.fullmatch(value):
            raise ValueError("has a space, or what is no printable ASCII")
        return value

    @model_validator(mode="after")
    def _can_be_reached(self) -> _Model:
        if self.base_url is not None:
            _check_address(self.base_url)
            if self.kind is Kind.BEDROCK and not self.base_url.startswith("https://"):
                raise ValueError("bedrock sends its key by https:// alone")
        elif self.kind not in ADDRESSES:
            raise ValueError(f"{self.kind.value} needs a base_url")
        if self.kind is Kind.LOCAL and (self.model != LOCAL_MODEL or self.base_url or self.credential):
            raise ValueError(f"local is the model {LOCAL_MODEL}, which is nowhere and needs no credential")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or (isinstance(value, str) and not _VALUE.fullmatch(value)):
                raise ValueError("a header has a name in small letters, and printable ASCII")
        return self


class _File(_Written):
    models: dict[str, _Model] = Field(default_factory=dict, max_length=MODELS_MAX)

    @field_validator("models")
    @classmethod
    def _are_named(cls, models: dict[str, _Model]) -> dict[str, _Model]:
        for name in models:
            if not _NAME.fullmatch(name):
                raise ValueError("a name has small letters, digits, '.', '_' and '-', and no ':'")
        return models


class Catalogue:
    """The models of a server, by name."""

    def __init__(self, entries: Iterable[ModelEntry] = ()) -> None:
        self._entries = {entry.name: entry for entry in entries}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def find(self, name: str) -> ModelEntry:
        """Raises AgentsUnavailable: only what is there under exactly this name is ever asked."""
        entry = self._entries.get(name)
        if entry is None:
            raise AgentsUnavailable("model_unknown", f"no model here has the name {name!r}")
        return entry

    def with_others(self, others: Catalogue) -> Catalogue:
        """Both; of two with one name, ours."""
        return Catalogue(
            (self._entries | {n: e for n, e in others._entries.items() if n not in self._entries}).values()
        )


def parse(document: dict[str, Any]) -> Catalogue:
    """Of the operator's file. Raises ValueError."""
    try:
        models = _File.model_validate(document).models
    except ValidationError as error:
        raise ValueError(problems_of(error)) from None
    return Catalogue(_entry(name, model) for name, model in models.items())


def of_names(names: Iterable[str]) -> Catalogue:
    """Of `kind:model` names, with the secrets that the kinds' usual variables have. Raises ValueError."""
    return Catalogue(_named(name) for name in names)


def resolved_headers(entry: ModelEntry) -> tuple[dict[str, str], list[Secret]]:
    """With the secrets among them. Raises CredentialMissing."""
    headers, secrets = {}, []
    for name, value in entry.headers:
        if isinstance(value, Source):
            secret = value.read()
            secrets.append(secret)
            headers[name] = secret.reveal()
        else:
            headers[name] = value
    return headers, secrets


def _entry(name: str, model: _Model) -> ModelEntry:
    return ModelEntry(
        name=name,
        kind=model.kind,
        model=model.model,
        base_url=model.base_url or ADDRESSES[model.kind],
        credential=model.credential,
        key=_usual_key(model.kind) if not model.credential and model.base_url is None else None,
        max_tokens=model.max_tokens,
        context_tokens=model.context_tokens,
        price=model.price.micros() if model.price else None,
        request_timeout_seconds=model.request_timeout_seconds,
        headers=tuple(sorted(model.headers.items(), key=lambda header: header[0])),
        region=model.region,
    )


def _named(name: str) -> ModelEntry:
    kind_name, colon, model = name.partition(":")
    kinds = {kind.value: kind for kind in ADDRESSES}
    if not colon or not model or kind_name not in kinds:
        raise ValueError(f"{name!r} is not kind:model with a kind of {', '.join(sorted(kinds))}")
    kind = kinds[kind_name]
    if kind is Kind.LOCAL and model != LOCAL_MODEL:
        raise ValueError(f"the only local model is local:{LOCAL_MODEL}")
    return ModelEntry(name=name, kind=kind, model=model, base_url=ADDRESSES[kind], key=_usual_key(kind))


def _usual_key(kind: Kind) -> Source | None:
    variable = VARIABLES.get(kind)
    return None if variable is None else Source(env=variable)


def _check_address(address: str) -> None:
    url = urlsplit(address)
    # Raises ValueError for what is no port.
    if url.port == 0:
        raise ValueError("base_url has no port 0")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("base_url is http:// or https:// and a host")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("base_url has no user, query or fragment: secrets are credentials or headers")
