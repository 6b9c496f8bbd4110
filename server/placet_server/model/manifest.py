"""A set of capabilities and where it runs, admitted whole or not at all."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placet_server.model.capability import DOCUMENT_BYTES_MAX, Capability
from placet_server.model.document import read, written
from placet_server.model.json_text import canonicalize, canonicalize_value

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]*")
NAME_LENGTH_MAX = 64
VERSION_LENGTH_MAX = 32
CAPABILITIES_MAX = 256
MANIFEST_BYTES_MAX = CAPABILITIES_MAX * DOCUMENT_BYTES_MAX // 64

ADDRESS_BYTES_MAX = 4096

# Owner of what the server itself offers to every tenant.
LOCAL_TENANT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalApp:
    """Handlers inside the server process; `app` is where they were loaded from."""

    app: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorAddress:
    """Another process that serves them; `target` is host:port. `tls_server_name` empty: the host."""

    target: str
    tls_server_name: str = ""
    plaintext: bool = False


def document_text(address: ConnectorAddress) -> str:
    """The form that the store keeps beside the manifest."""
    return canonicalize_value(written(address), bytes_max=ADDRESS_BYTES_MAX).text


def address_of_text(text: str) -> ConnectorAddress:
    """Raises DocumentRefused."""
    return read(ConnectorAddress, canonicalize(text, bytes_max=ADDRESS_BYTES_MAX).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`version` is free text, for people; the capabilities carry their own.

    Of several versions of one name the last listed is the one that invocations without a version get. It runs behind
    `connector` if that is set.
    """

    name: str
    version: str = ""
    capabilities: tuple[Capability, ...]
    runs: LocalApp = field(default_factory=LocalApp)
    connector: ConnectorAddress | None = None

    def to_document(self) -> dict[str, Any]:
        """The JSON form that the store keeps."""
        document: dict[str, Any] = written(self)
        return document

    def to_text(self) -> str:
        """The canonical text of the document."""
        return canonicalize_value(self.to_document(), bytes_max=MANIFEST_BYTES_MAX).text

    def digest(self) -> str:
        """Hex SHA-256 of the canonical text, presentation included."""
        return canonicalize_value(self.to_document(), bytes_max=MANIFEST_BYTES_MAX).digest.hex()

    @classmethod
    def from_document(cls, document: object) -> "Manifest":
        """Raises DocumentRefused for unknown or missing members and wrong types."""
        return read(cls, document)

    @classmethod
    def from_text(cls, text: str) -> "Manifest":
        """Raises DocumentRefused, and what `canonicalize` raises."""
        return cls.from_document(canonicalize(text, bytes_max=MANIFEST_BYTES_MAX).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerClaims:
    """What a loaded handler says it can do."""

    cancellable: bool = False
    streaming: bool = False
    effect_marked: bool = False
    lookup: bool = False
    composes: bool = False
    """It is async and of the server's own process, so it may be COMPOSED."""


# (name, version) → claims, as the loaded app registered them.
Handlers = Mapping[tuple[str, str], HandlerClaims]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding about a manifest. A warning does not refuse it."""

    path: str
    code: str
    message: str
    warning: bool = False
