"""A question to people: what is asked, whom, and what counts as an answer. It is the input of `human.input`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from placet_server.model.approval import (
    TTL_DEFAULT_SECONDS,
    Escalation,
    Quorum,
    Rule,
    Terms,
    Vote,
    satisfied,
    selected,
)
from placet_server.model.approval_bounds import terms_problems
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import (
    parse_escalation,
    parse_rule,
    parse_selector,
    parse_span,
)
from placet_server.model.errors import FieldViolation
from placet_server.model.json_schema import SchemaRefused, compile_schema
from placet_server.model.json_text import canonicalize_value

CAPABILITY = "human.input"
MANIFEST = "placet"
ANSWER_BYTES_MAX = 256 * 1024

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "to"],
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 256},
        "prompt": {"type": "string", "maxLength": 4096},
        "answer_schema": {"type": ["object", "boolean"]},
        "choices": {"type": "array", "minItems": 1, "maxItems": 50, "uniqueItems": True},
        "to": {"type": "string", "minLength": 1, "maxLength": 4096},
        "ttl": {"type": "string", "minLength": 1, "maxLength": 16},
        "escalate": {"type": "string", "minLength": 1, "maxLength": 4096},
    },
}

# Where a problem of the terms comes from.
_MEMBERS = {"ttl": "/ttl", "escalation.after": "/escalate", "escalation.to": "/escalate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`answer_schema` "": any text, or what the choices say."""

    title: str
    prompt: str
    terms: Terms
    answer_schema: str
    choices: tuple[Any, ...]

    def violations(self, answer: Any) -> Iterator[FieldViolation]:
        """What is wrong with an answer, a JSON value."""
        for found in compile_schema(self.answer_schema).violations(answer):
            yield FieldViolation(field=found.path, rule=found.rule, description=found.message)
        if self.choices and _text(answer) not in map(_text, self.choices):
            yield FieldViolation(field="", rule="choices", description="not one of the choices")


class QuestionRefused(ValueError):
    """Each violation is a place in the input."""

    def __init__(self, violations: tuple[FieldViolation, ...]) -> None:
        super().__init__(violations)
        self.violations = violations


def question_of(value: dict[str, Any]) -> Question:
    """Of an input that fits INPUT_SCHEMA. Raises QuestionRefused."""
    reader = _Reader(value)
    question = Question(
        title=value["title"],
        prompt=value.get("prompt", ""),
        terms=reader.terms(),
        answer_schema=reader.answer_schema(),
        choices=tuple(value.get("choices", ())),
    )
    if not reader.problems:
        reader.check(question)
    if reader.problems:
        raise QuestionRefused(tuple(reader.problems))
    return question


def is_answerable(terms: Terms, requesters: Collection[str] = ()) -> bool:
    """A question has one answer, so one person has to be all whom the terms ask for: whether there can be such a one,
    with every role and group that is named. `requesters`: who asks, and in whose name.
    """
    who = selected(terms)
    # And somebody whom no name is meant for.
    people = {*who.subjects, ""} - (set() if terms.requester_may_approve else set(requesters))
    can_log_in = terms.login_strengths is None or bool(terms.login_strengths)
    return can_log_in and any(
        satisfied(terms.rule, [Vote(subject, who.roles, who.groups)]) for subject in people
    )


class _Reader:
    """Collects what is wrong."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value
        self.problems: list[FieldViolation] = []

    def terms(self) -> Terms:
        return Terms(
            rule=self._rule(),
            # Whoever asks, or has somebody ask, may know the answer best.
            requester_may_approve=True,
            ttl_seconds=self._ttl(),
            escalation=self._escalation(),
        )

    def answer_schema(self) -> str:
        if "answer_schema" not in self._value:
            return "" if "choices" in self._value else '{"type":"string"}'
        return _text(self._value["answer_schema"])

    def check(self, question: Question) -> None:
        for found in terms_problems(question.terms):
            self._note(_MEMBERS.get(found.member, "/to"), found.code, found.message)
        if not self.problems and not is_answerable(question.terms):
            self._note(
                "/to", "never_answered", "one person answers, and nobody alone is all who are asked for"
            )
        try:
            compile_schema(question.answer_schema)
        except SchemaRefused as refused:
            self._note(f"/answer_schema{refused.path}", "answer_schema_refused", refused.problem)
            return
        for index, choice in enumerate(question.choices):
            if any(question.violations(choice)):
                self._note(f"/choices/{index}", "choice_unfit", "does not fit answer_schema")

    def _rule(self) -> Rule:
        text: str = self._value["to"].strip()
        try:
            return (
                parse_rule(text)
                if text[:1].isdecimal() or text[:1] == "("
                else Quorum(1, parse_selector(text))
            )
        except TermsRefused as refused:
            self._note("/to", "to", str(refused))
            return Quorum(1, parse_selector("role:unreadable"))

    def _ttl(self) -> int:
        try:
            return parse_span(self._value["ttl"]) if "ttl" in self._value else TTL_DEFAULT_SECONDS
        except TermsRefused as refused:
            self._note("/ttl", "ttl", str(refused))
            return TTL_DEFAULT_SECONDS

    def _escalation(self) -> Escalation | None:
        try:
            return parse_escalation(self._value["escalate"]) if "escalate" in self._value else None
        except TermsRefused as refused:
            self._note("/escalate", "escalate", str(refused))
            return None

    def _note(self, field: str, rule: str, description: str) -> None:
        self.problems.append(FieldViolation(field=field, rule=rule, description=description))


def _text(value: Any) -> str:
    return canonicalize_value(value, bytes_max=ANSWER_BYTES_MAX * 8).text
