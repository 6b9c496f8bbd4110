"""An approval on the screen: what exactly would run, who asks for it, who has to say yes, and who has.

One fact a line, and everything that others wrote is escaped and cut: no text of theirs makes up a line of its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from placet_server.cli.complaint import Complaint
from placet_server.cli.escape import escape
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.input_tree import text_of, tree_lines
from placet_server.cli.lookalike import not_ascii
from placet_server.cli.output import moment, print_facts, say
from placet_server.cli.terms import condition_words, rule_words, span_words, who_words

if TYPE_CHECKING:
    from placet import Client

Facts = list[tuple[str, str]]
LINE_CHARACTERS_MAX = 1000


def look_at(client: Client, approval_id: str) -> dict[str, Any]:
    """Its document, whole, with the names of the policies that decided, as far as they are ours to see."""
    from placet_server.cli.document import document_of

    found = document_of(client.approval(approval_id))
    return {**found, "policies": _policies(client, found["action_id"])}


def print_approval(found: dict[str, Any]) -> None:
    """Whole, for who is about to decide."""
    _print([("approval", found["approval_id"]), ("state", _state(found)), ("asks", found["title"])])
    _print(_what(found))
    say("input")
    for line in tree_lines(found["input"], first=_key_fields(found), hidden=found["hidden_paths"]):
        say(f"  {line}")
    _print([*_who(found), *_why(found), *_times(found)])
    for decision in found["decisions"]:
        say(escape(_vote(decision)))
    _print([("digest", found["digest"])])


def print_question_facts(found: dict[str, Any]) -> None:
    """All but its prompt and choices."""
    _print([("question", found["approval_id"]), ("state", _state(found))])
    _print(
        [("asks", f"{found['title']}  (NOT VERIFIED: the words of who asks)"), *_who(found), *_times(found)]
    )
    terms = found["terms"] or {}
    _print(
        [
            ("may answer", rule_words(terms["rule"]) if terms.get("rule") else ""),
            ("claimed by", _claim(found)),
        ]
    )
    for decision in found["decisions"]:
        say(escape(_vote(decision)))


def time_left(expire_time: str | None) -> str:
    """By the clock of this machine."""
    if not expire_time:
        return ""
    seconds = (datetime.fromisoformat(expire_time) - datetime.now(UTC)).total_seconds()
    return f"in {span_words(seconds)}" if seconds > 0 else "over"


def problem_words(problem: str) -> str:
    """Why it is not yours to decide."""
    return _PROBLEMS.get(problem, problem)


def check_eligible(found: dict[str, Any], undone: str) -> None:
    """Who has voted may say the same again. Raises Complaint, which ends in `undone`."""
    problem = (found["eligibility"] or {}).get("problem", "")
    if problem and problem != "voted":
        code = ExitCode.CONFLICT if problem == "not_pending" else ExitCode.FORBIDDEN
        raise Complaint(f"you {problem_words(problem)}: {undone}", code)


def verdict_word(verdict: str) -> str:
    return _VERDICTS.get(verdict, verdict)


def flagged(name: str) -> str:
    """A name, with what in it is not ASCII, and so may look like another."""
    strange = not_ascii(name)
    return f"{name}  (NOT ALL ASCII: {strange})" if strange else name


def _print(facts: Facts) -> None:
    print_facts((f"{name:<16}", _cut(value)) for name, value in facts if value)


def _cut(value: str) -> str:
    if len(value) <= LINE_CHARACTERS_MAX:
        return value
    return f"{value[:LINE_CHARACTERS_MAX]}…  (CUT: {len(value)} characters in all)"


def _state(found: dict[str, Any]) -> str:
    if found["state"] != "GRANTED":
        return str(found["state"])
    begun = found["consume_time"]
    return f"GRANTED, and begun at {_time(begun)}" if begun else "GRANTED, and not begun"


def _what(found: dict[str, Any]) -> Facts:
    facts = found["contract"] or {}
    effect = facts.get("effect", "")
    return [
        ("capability", f"{flagged(found['capability'])}, version {found['version']}"),
        ("does", text_of(facts["description"]) if facts.get("description") else ""),
        ("effect", f"{effect}: {_EFFECTS.get(effect, '')}" if effect else ""),
        ("hazards", ", ".join(facts.get("hazards", ()))),
        ("risk", facts.get("risk", "")),
    ]


def _who(found: dict[str, Any]) -> Facts:
    requester = found["requester"] or {}
    words = ", ".join(f"{name}={text_of(value)}" for name, value in found["labels"].items())
    chain = [f"{flagged(each['subject'])} ({each['kind']})" for each in requester.get("delegation", ())]
    return [
        ("asked for by", f"{flagged(requester.get('subject', ''))} ({requester.get('kind', '')})"),
        ("by way of", ", for ".join(chain)),
        ("says", f"{words}  (NOT VERIFIED: the requester's own words)" if words else ""),
    ]


def _why(found: dict[str, Any]) -> Facts:
    terms = found["terms"] or {}
    hidden = ", ".join(found["hidden_paths"])
    who = found["eligibility"] or {"eligible": False, "problem": ""}
    is_pending = found["state"] == "PENDING"
    return [
        ("must say yes", rule_words(terms["rule"]) if terms.get("rule") else ""),
        ("how", "; ".join(condition_words(terms)) if terms else ""),
        ("in the terms", terms.get("text", "")),
        ("allowed by", ", ".join(f"policy {name}" for name in found.get("policies") or ())),
        ("still needed", found["missing"] if is_pending else ""),
        ("asked before", _before(found)),
        ("hidden from you", f"{hidden}: scope payloads.sensitive shows it" if hidden else ""),
        ("claimed by", _claim(found)),
        (
            "you",
            ("may decide it" if who["eligible"] else problem_words(who["problem"])) if is_pending else "",
        ),
    ]


def _times(found: dict[str, Any]) -> Facts:
    until = f"{_time(found['expire_time'])} ({time_left(found['expire_time'])})"
    terms = found["terms"] or {}
    escalation = terms.get("escalation")
    told = (
        f"at {_time(found['escalate_time'])} {who_words(escalation['to'])} is told, too" if escalation else ""
    )
    return [
        ("action", found["action_id"]),
        ("asked at", _time(found["create_time"])),
        (
            "if nobody acts",
            f"{_idle(found)} {until}" if found["state"] in _IDLE and not found["consume_time"] else "",
        ),
        ("escalates", told if found["state"] == "PENDING" else ""),
    ]


def _before(found: dict[str, Any]) -> str:
    if not found["predecessor_id"]:
        return ""
    return f"{found['predecessor_id']}; since then: {found['difference'] or 'nothing that is told'}"


def _claim(found: dict[str, Any]) -> str:
    return (
        f"{flagged(found['claimed_by'])} until {_time(found['claim_expire_time'])}"
        if found["claimed_by"]
        else ""
    )


def _vote(decision: dict[str, Any]) -> str:
    evidence = decision["evidence"] or {"ticket": "", "attachments": ()}
    parts = [
        f"{verdict_word(decision['verdict'])} from {flagged(decision['voter'])}",
        f"at {_time(decision['create_time'])}",
        text_of(decision["reason"]) if decision["reason"] else "",
        f"ticket {text_of(evidence['ticket'])}" if evidence["ticket"] else "",
        *(f"attachment {text_of(each)}" for each in evidence["attachments"]),
        f"{text_of(decision['answer'])}" if decision.get("answer") is not None else "",
        f"rather {text_of(decision['suggested_input'])}" if decision["suggested_input"] is not None else "",
        f"TAKEN BACK at {_time(decision['revoke_time'])}" if decision["revoke_time"] else "",
    ]
    return "  ".join(part for part in parts if part)


def _key_fields(found: dict[str, Any]) -> list[str]:
    """In the contract's order: the summary has a line for each."""
    members = found["input"] if isinstance(found["input"], dict) else {}
    lines = found["summary"].split("\n")
    begun = [(line, name) for line in lines for name in members if line.startswith(f"{name}: ")]
    return list(dict.fromkeys(name for _, name in begun))


def _policies(client: Client, action_id: str) -> list[str]:
    from placet.errors import PermissionDeniedError, RefusedError

    try:
        decision = client.explain(action_id).decision
    except (PermissionDeniedError, RefusedError):
        return []
    return [policy.name for policy in decision.policies]


def _idle(found: dict[str, Any]) -> str:
    is_open_question = found["kind"] == "INPUT" and found["state"] == "PENDING"
    return (
        "there is no answer, DENIED, unless somebody answers by"
        if is_open_question
        else _IDLE[found["state"]]
    )


def _time(text: str | None) -> str:
    return f"{moment(text)}Z" if text else ""


_VERDICTS = {"APPROVE": "yes", "DENY": "no", "ANSWER": "answer"}
_IDLE = {
    "PENDING": "it is over, DENIED, and nothing of it runs, unless enough people say yes by",
    "GRANTED": "a server begins it, at the latest by",
}
_EFFECTS = {
    "READ": "it changes nothing",
    "COMPOSED": "what it does are actions of their own, each allowed by itself",
    "IDEMPOTENT": "repeating it under its key changes nothing more",
    "RECONCILABLE": "what became of it can be looked up",
    "UNSAFE": "repeating it does it again, and nobody can look it up",
}
_PROBLEMS = {
    "requester": "may not decide it: you asked for it, or it was asked for in your name",
    "not_selected": "may not decide it: its terms name neither you nor a role or group of yours",
    "not_a_person": "may not decide it: only people do, in their own name",
    "login_too_weak": "may not decide it: its terms ask for a stronger login",
    "login_too_old": "may not decide it: log in again first",
    "material_path_hidden": "may not decide it: you may not see all that a voter has to see",
    "scope_missing": "may not decide it: you have not the scope approvals.decide",
    "not_pending": "cannot decide it any more",
    "voted": "have decided it already",
}
