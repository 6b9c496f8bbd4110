"""The input gate: canonical JSON within its bounds that fits the schema."""

from __future__ import annotations

from placet_server.model.capability import Capability
from placet_server.model.errors import FieldViolation, InputSchemaViolation
from placet_server.model.json_text import CanonicalJson, canonicalize


def check_input(capability: Capability, input_json: str) -> CanonicalJson:
    """Raises MalformedJson, JsonNotInteroperable, PayloadTooLarge, InputSchemaViolation."""
    canonical = canonicalize(input_json, bytes_max=capability.contract.limits.input_bytes_max)
    violations = capability.compiled_input.violations(canonical.value)
    if violations:
        raise InputSchemaViolation(
            capability=capability.name,
            version=capability.version,
            violations=tuple(
                FieldViolation(field=v.path, rule=v.rule, description=v.message) for v in violations
            ),
        )
    return canonical
