"""Everything that is wrong with a policy set, found at once and beside the event loop. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from placet_server.model.approval_bounds import read_terms
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.capability import Capability
from placet_server.model.manifest import Problem
from placet_server.model.policy import (
    NAME_LENGTH_MAX,
    NAME_PATTERN,
    OVERLAYS_MAX,
    PATTERN_LENGTH_MAX,
    PATTERN_PATTERN,
    PolicySet,
)
from placet_server.model.policy_schema import schema_of, schema_problems
from placet_server.model.policy_text import MESSAGE_LENGTH_MAX, Policy, parse_policies

# Each policy is checked against each capability and kind of caller that it could be about.
CHECKS_MAX = 200_000


def check_policy_set(document: PolicySet, capabilities: Collection[Capability]) -> list[Problem]:
    """Every problem; all of them refuse the set. Blocks for up to some seconds, and lets go of the interpreter."""
    problems = [*_name_problems(document), *_overlay_problems(document)]
    parsed = parse_policies(document.cedar)
    problems += parsed.problems
    if parsed.problems:
        return problems
    problems += _approval_problems(document, parsed.policies)
    names = {capability.name for capability in capabilities}
    if len(parsed.policies) * len(names) > CHECKS_MAX:
        text = f"{len(parsed.policies)} policies about {len(names)} capabilities are too many to check."
        return [*problems, _error("cedar", "check_too_dear", text)]
    return [*problems, *schema_problems(document.cedar, schema_of(capabilities))]


def _name_problems(document: PolicySet) -> Iterator[Problem]:
    if len(document.name) > NAME_LENGTH_MAX or not NAME_PATTERN.fullmatch(document.name):
        text = f"A name of small letters, digits, dashes and underscores, at most {NAME_LENGTH_MAX}."
        yield _error("name", "name_malformed", text)


def _overlay_problems(document: PolicySet) -> Iterator[Problem]:
    if (count := len(document.overlays)) > OVERLAYS_MAX:
        yield _error("overlays", "overlays_too_many", f"{count} overlays; at most {OVERLAYS_MAX}.")
    for position, overlay in enumerate(document.overlays):
        path = f"overlays[{position}]"
        if len(overlay.pattern) > PATTERN_LENGTH_MAX or not PATTERN_PATTERN.fullmatch(overlay.pattern):
            text = 'A name such as payments.refund, "payments.*" for all below it, or "*" for all.'
            yield _error(f"{path}.pattern", "pattern_malformed", text)
        if not overlay.hazards and not overlay.approval:
            yield _error(path, "overlay_empty", "It adds neither hazards nor an approval.")


def _approval_problems(document: PolicySet, policies: Iterable[Policy]) -> Iterator[Problem]:
    """Terms that cannot be read."""
    asked = [
        *((f"policies[{at}]", policy.approval) for at, policy in enumerate(policies) if policy.asks),
        *(
            (f"overlays[{at}].approval", each.approval)
            for at, each in enumerate(document.overlays)
            if each.approval
        ),
    ]
    for path, text in asked:
        try:
            read_terms(text)
        except TermsRefused as error:
            yield _error(
                path, "approval_malformed", f"The approval cannot be read: {error}."[:MESSAGE_LENGTH_MAX]
            )


def _error(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message)
