"""What a tenant lets happen: its policy set as it is written down, and what it says about one call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from placet_server.model.approval import Terms, join
from placet_server.model.approval_bounds import is_too_large, read_terms
from placet_server.model.approval_text import format_terms, parse_terms
from placet_server.model.capability import NAME_LENGTH_MAX as CAPABILITY_LENGTH_MAX
from placet_server.model.contract import Hazard
from placet_server.model.document import read, written
from placet_server.model.json_text import canonicalize, canonicalize_value

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]*")
NAME_LENGTH_MAX = 64
# Of names of policies: what an error or a line of a terminal may show as it is.
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ID_LENGTH_MAX = 64
CEDAR_BYTES_MAX = 256 * 1024
POLICIES_MAX = 1000
OVERLAYS_MAX = 100
PATTERN_PATTERN = re.compile(r"\*|[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*(\.\*)?")
PATTERN_LENGTH_MAX = CAPABILITY_LENGTH_MAX + 2
DOCUMENT_BYTES_MAX = 2 * 2**20
VERDICT_BYTES_MAX = 2**20

# Owner of the set that is asked first, for every tenant.
OPERATOR_TENANT = "-"
# Before the name of a policy of that owner, where both are named.
OPERATOR_PREFIX = "-/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What a tenant adds to the contracts of capabilities by name: "payments.*" means every name below, "*" all.

    `approval`: terms in their text form, empty for none. Nothing is ever taken from a contract.
    """

    pattern: str
    hazards: frozenset[Hazard] = frozenset()
    approval: str = ""

    def covers(self, name: str) -> bool:
        """Of a capability."""
        return is_covered(self.pattern, name)


def is_covered(pattern: str, name: str) -> bool:
    if pattern == "*":
        return True
    return name.startswith(pattern[:-1]) if pattern.endswith(".*") else name == pattern


@dataclass(frozen=True, kw_only=True)
class PolicySet:
    """`cedar`: the policies' text. A tenant has one set at a time in force."""

    name: str
    cedar: str
    overlays: tuple[Overlay, ...] = ()

    def to_text(self) -> str:
        """The canonical text of the document. Raises PayloadTooLarge."""
        return canonicalize_value(written(self), bytes_max=DOCUMENT_BYTES_MAX).text

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the canonical text."""
        return canonicalize_value(written(self), bytes_max=DOCUMENT_BYTES_MAX).digest.hex()

    @classmethod
    def from_text(cls, text: str) -> PolicySet:
        """Raises DocumentRefused, and what `canonicalize` raises."""
        return read(cls, canonicalize(text, bytes_max=DOCUMENT_BYTES_MAX).value)


class Deciding(NamedTuple):
    """A policy that made a decision: its name, and the digest of what it says."""

    policy: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class PolicyVerdict:
    """What the policies in force say about one call. `problem`: why it is not allowed, one of PROBLEMS.

    `policies`: those that decided, by name. `approval`: what has to be agreed to before it runs, as terms in their text
    form, joined; empty for nothing. What the contract asks for besides is the contract's, and pinned with it.

    Its digest covers what decided, and nothing else of the set: another policy that changes, or a description, changes
    no verdict.
    """

    allowed: bool
    problem: str = ""
    policies: tuple[Deciding, ...] = ()
    approval: str = ""

    def to_text(self) -> str:
        """The canonical form that is stored."""
        return canonicalize_value(self._document, bytes_max=VERDICT_BYTES_MAX).text

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the stored form."""
        return canonicalize_value(self._document, bytes_max=VERDICT_BYTES_MAX).digest.hex()

    @property
    def terms(self) -> Terms | None:
        """What has to be agreed to; None: nothing."""
        return _terms(self.approval) if self.approval else None

    @property
    def names(self) -> str:
        """Of the deciding policies, for people."""
        return ", ".join(each.policy for each in self.policies)

    @property
    def _document(self) -> dict[str, Any]:
        return {
            "allowed": self.allowed,
            "problem": self.problem,
            "policies": [list(each) for each in self.policies],
            "approval": self.approval,
        }

    @classmethod
    def from_text(cls, text: str) -> PolicyVerdict:
        """Of the stored form."""
        document = canonicalize(text, bytes_max=VERDICT_BYTES_MAX).value
        policies = tuple(Deciding(*each) for each in document.pop("policies"))
        return cls(policies=policies, **document)


@lru_cache(maxsize=1024)
def _terms(text: str) -> Terms:
    """As `joined` wrote them."""
    return parse_terms(text)


@lru_cache(maxsize=1024)
def joined(texts: tuple[str, ...]) -> str | None:
    """What satisfies all of these terms, in one text form; empty for none. None: too much for one request.

    Raises TermsRefused for what cannot be read.
    """
    terms = [read_terms(text) for text in texts]
    if not terms:
        return ""
    together = join(*terms)
    return None if is_too_large(together) else format_terms(together)


# A forbid applied; no permit did; a policy could not be evaluated; what a policy reads has no form in Cedar; what
# everybody asks for together is more than one request can carry; nobody alone is all whom a question would need.
PROBLEMS = ("forbidden", "not_permitted", "not_evaluated", "not_readable", "asks_too_much", "not_answerable")
