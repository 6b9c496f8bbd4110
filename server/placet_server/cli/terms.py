"""Who has to say yes, in words. Unescaped."""

from __future__ import annotations

from typing import Any

_KINDS = (("roles", "role "), ("groups", "group "), ("subjects", ""))
_EVIDENCE = {"REASON": "a reason", "TICKET": "a ticket", "ATTACHMENT": "an attachment"}


def rule_words(rule: dict[str, Any]) -> str:
    if "quorum" in rule:
        return _quorum(rule["quorum"])
    word, rules = (
        (" and ", rule["all_of"]["rules"])
        if "all_of" in rule
        else (" or ", rule.get("any_of", {}).get("rules", ()))
    )
    return word.join(rule_words(r) if "quorum" in r else f"({rule_words(r)})" for r in rules)


def condition_words(terms: dict[str, Any]) -> list[str]:
    """What else must be so for a yes to count."""
    told = []
    if terms["evidence"]:
        told.append("each yes with " + " and ".join(_EVIDENCE.get(kind, kind) for kind in terms["evidence"]))
    if terms["login_strengths"]:
        told.append("logged in by " + " or ".join(terms["login_strengths"]))
    if terms["login_age_max"]:
        told.append(f"logged in at most {span_words(terms['login_age_max'])} ago")
    if terms["material_paths"]:
        told.append("with clear sight of " + ", ".join(terms["material_paths"]))
    told.append(
        "whoever asks may be one of them"
        if terms["requester_may_approve"]
        else "whoever asks is none of them"
    )
    return told


def who_words(selector: dict[str, Any]) -> str:
    return " or ".join(f"{kind}{name}" for member, kind in _KINDS for name in selector[member])


def span_words(seconds: float) -> str:
    """The two largest units of it: 2 d 3 h, 3 h 12 min, 45 s."""
    left, told = max(int(seconds), 0), []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            told.append(f"{count} {unit}")
        elif told:
            break
    return " ".join(told[:2]) or "0 s"


def _quorum(quorum: dict[str, Any]) -> str:
    count = quorum["count"]
    return f"{count} {'person' if count == 1 else 'people'} of {who_words(quorum['who'] or {})}"
