"""A named, versioned thing that can be invoked under a contract."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import orjson

from placet_server.model.agent import AgentSpec
from placet_server.model.contract import Contract, EffectClass
from placet_server.model.document import read, written
from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_schema import CompiledSchema, compile_schema
from placet_server.model.json_text import canonicalize, canonicalize_value

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
NAME_LENGTH_MAX = 128
VERSION_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
VERSION_LENGTH_MAX = 32
DOCUMENT_BYTES_MAX = 4 * 2**20


class CapabilityKind(StrEnum):
    """TOOL: one handler call. HUMAN: a question to people, which the server alone offers. AGENT: a model in a loop over
    tools, which has no handler."""

    TOOL = "TOOL"
    HUMAN = "HUMAN"
    AGENT = "AGENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """What people see. Outside the contract digest: it may change under a version."""

    title: str = ""
    description: str = ""
    key_fields: tuple[str, ...] = ()
    documentation_url: str = ""


@dataclass(frozen=True, kw_only=True)
class Capability:
    """Schemas are JSON Schema 2020-12 texts; the empty one allows any JSON. `agent`: of an AGENT alone, whose input
    schema is the server's.

    A version never changes its digest.
    """

    name: str
    version: str
    kind: CapabilityKind = CapabilityKind.TOOL
    input_schema: str = ""
    output_schema: str = ""
    contract: Contract
    presentation: Presentation = field(default_factory=Presentation)
    agent: AgentSpec | None = None

    @cached_property
    def contract_digest(self) -> str:
        """Hex SHA-256 over the RFC 8785 form of kind, schemas and contract, and of what makes it an agent.

        Raises MalformedJson or JsonNotInteroperable for a schema that is no JSON.
        """
        bound: dict[str, Any] = {
            "kind": self.kind.value,
            "input_schema": self.input_schema_value,
            "output_schema": self.output_schema_value,
            "contract": written(self.contract),
        }
        if self.agent is not None:
            bound["agent"] = written(self.agent)
        return canonicalize_value(bound, bytes_max=DOCUMENT_BYTES_MAX, depth_max=80).digest.hex()

    @property
    def contract_digest_or_none(self) -> str | None:
        """None if a schema is no JSON."""
        try:
            return self.contract_digest
        except (MalformedJson, JsonNotInteroperable, PayloadTooLarge):
            return None

    @cached_property
    def input_schema_value(self) -> Any:
        """None for the empty schema. Raises as `contract_digest` does."""
        return _schema_value(self.input_schema)

    @cached_property
    def output_schema_value(self) -> Any:
        """None for the empty schema. Raises as `contract_digest` does."""
        return _schema_value(self.output_schema)

    @cached_property
    def compiled_input(self) -> CompiledSchema:
        """Raises SchemaRefused; never for an admitted capability."""
        return compile_schema(self.input_schema)

    @cached_property
    def compiled_output(self) -> CompiledSchema:
        """Raises SchemaRefused; never for an admitted capability."""
        return compile_schema(self.output_schema)

    @cached_property
    def is_limited(self) -> bool:
        """Its attempts need a slot, or a start that a rate allows."""
        limits = self.contract.limits
        return limits.concurrency_max is not None or limits.rate_max is not None

    @cached_property
    def pinned(self) -> dict[str, Any]:
        """What the row of each of its actions says of it, by column."""
        return {
            "capability": self.name,
            "version": self.version,
            "contract_digest": self.contract_digest,
            "effect_class": self.contract.effect.value,
            # What is COMPOSED begins its effect with the first of what it calls.
            "effect_marked": self.contract.effect_marked or self.contract.effect is EffectClass.COMPOSED,
            "effect_key_ttl_seconds": self.contract.effect_key_ttl_seconds,
            "key_ttl_seconds": self.contract.idempotency.ttl_seconds,
            "attempts_max": self.contract.attempts_max,
        }

    @cached_property
    def retry_text(self) -> str | None:
        """What the row of each of its submitted actions says of the pauses between attempts."""
        retry = self.contract.retry
        return None if retry is None else orjson.dumps(written(retry), option=orjson.OPT_SORT_KEYS).decode()

    def to_document(self) -> dict[str, Any]:
        """The JSON form that the store keeps."""
        document: dict[str, Any] = written(self)
        return document

    @classmethod
    def from_document(cls, document: object) -> "Capability":
        """Raises DocumentRefused for unknown or missing members and wrong types."""
        return read(cls, document)


def _schema_value(text: str) -> Any:
    return canonicalize(text, bytes_max=DOCUMENT_BYTES_MAX).value if text else None
