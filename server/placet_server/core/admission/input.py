"""The input gate: canonical JSON within its bounds that fits the schema; and of an agent, no more words than its model
could ever be told.
"""

from __future__ import annotations

from placet_server.model.ask import words_bytes
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.errors import FieldViolation, PayloadTooLarge
from placet_server.model.gate_errors import InputSchemaViolation
from placet_server.model.json_text import CanonicalJson, canonicalize
from placet_server.model.question import QuestionRefused, question_of


def check_input(capability: Capability, input_json: str, *, words_bytes_max: int = 0) -> CanonicalJson:
    """`words_bytes_max`: of what an agent is asked; 0: nobody knows.

    Raises MalformedJson, JsonNotInteroperable, PayloadTooLarge, InputSchemaViolation.
    """
    canonical = canonicalize(input_json, bytes_max=capability.contract.limits.input_bytes_max)
    violations = capability.compiled_input.violations(canonical.value)
    if violations:
        found = tuple(FieldViolation(field=v.path, rule=v.rule, description=v.message) for v in violations)
        raise _violated(capability, found)
    if words_bytes_max and (size := words_bytes(canonical.value)) > words_bytes_max:
        raise PayloadTooLarge(bytes=size, bytes_max=words_bytes_max)
    if capability.kind is CapabilityKind.HUMAN:
        try:
            question_of(canonical.value)
        except QuestionRefused as refused:
            raise _violated(capability, refused.violations) from None
    return canonical


def _violated(capability: Capability, violations: tuple[FieldViolation, ...]) -> InputSchemaViolation:
    return InputSchemaViolation(capability=capability.name, version=capability.version, violations=violations)
