"""Write the parts of docs/ that repeat the code: the error reasons, the settings, the metrics.

`python tools/write_reference.py` writes them; with `--check` it only says which are out of date. A part stands between
`<!-- generated: name -->` and `<!-- end -->`; everything else in the document is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from placet.status import _BY_REASON as EXCEPTIONS
from placet_server.config import Config
from placet_server.model import (
    budget_errors,
    child_errors,
    connector_errors,
    decision_errors,
    ending_errors,
    errors,
    gate_errors,
    identity_errors,
    policy_errors,
    run_errors,
)
from placet_server.telemetry.metric import Metrics

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto/placet/v1/error_reason.proto"

_PART = re.compile(r"(<!-- generated: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_REASON = re.compile(r"((?:  //[^\n]*\n)+)  ERROR_REASON_([A-Z_]+) = \d+;")
_SAMPLE = re.compile(r" ?(\{.*\})$")

NOTHING = "nothing was stored and nothing ran"
READ_OR = "NOT_DONE; unset for READ"
WAITS = "NOT_DONE; UNKNOWN of what is COMPOSED once a step may have done something; unset for READ"
_OF_STEPS = "what is known of what the run has called"
_NEW_RUN = (
    "Begin another run, with a larger budget if this one was too small: {} of its agent, or the server's."
)


class Advice(NamedTuple):
    """What the caller of a reason needs that the contract's comment does not say."""

    effect: str
    retry: str
    todo: str


ADVICE = {
    "MALFORMED_REQUEST": Advice(NOTHING, "NEVER", "Correct the fields that `BadRequest` names."),
    "MALFORMED_JSON": Advice(NOTHING, "NEVER", "Send valid JSON; `offset` counts characters from 0."),
    "JSON_NOT_INTEROPERABLE": Advice(
        NOTHING, "NEVER", "Name each member once; send money, 64-bit ids and long decimals as strings."
    ),
    "PAYLOAD_TOO_LARGE": Advice(NOTHING, "NEVER", "Pass a reference to large data instead of the data."),
    "UNAUTHENTICATED": Advice(
        NOTHING,
        "NEVER",
        "Send `authorization: Bearer <token>` with a token that holds here; `problem` says why.",
    ),
    "NOT_FOUND": Advice(
        NOTHING, "NEVER", "Check the id and the tenant: what another tenant owns is not found, too."
    ),
    "CURSOR_EXPIRED": Advice("the watched action is untouched", "NEVER", "Watch again from `oldest_cursor`."),
    "STALE_DIGEST": Advice(NOTHING, "NEVER", "Look at it again, then decide with its new digest."),
    "MANIFEST_REFUSED": Advice(
        NOTHING, "NEVER", "Run `placet app check`, or admit with `validate_only`, to see every problem."
    ),
    "POLICY_SET_REFUSED": Advice(
        NOTHING, "NEVER", "Validate the set: every problem is told, with what to do."
    ),
    "SCOPE_MISSING": Advice(NOTHING, "NEVER", "Ask whoever issues your token for the scope."),
    "UNKNOWN_METHOD": Advice(NOTHING, "NEVER", "The server is older than your stubs; compare the versions."),
    "CAPABILITY_NOT_FOUND": Advice(
        NOTHING, "NEVER", "`placet capabilities` lists what your tenant can call."
    ),
    "HANDLER_NOT_FOUND": Advice(NOTHING, "NEVER", "Start the server with the app that serves it (`--app`)."),
    "INPUT_SCHEMA_VIOLATION": Advice(
        NOTHING, "NEVER", "Correct the input at the JSON Pointers that `BadRequest` names."
    ),
    "CONTRACT_VIOLATION": Advice(NOTHING, "NEVER", "Do what `rule` and the message say."),
    "IDEMPOTENCY_KEY_REQUIRED": Advice(
        NOTHING, "NEVER", "Send `options.idempotency_key`, made from what you want done."
    ),
    "CREDENTIAL_MISMATCH": Advice(
        NOTHING, "NEVER", "`problem` is missing, expired, wrong_issuer or missing_scope: get such a token."
    ),
    "POLICY_REFUSED": Advice(
        NOTHING,
        "NEVER",
        "`placet explain` with `refusal_id` shows which policies decided, and why; ask whoever admits them.",
    ),
    "AGENT_UNAVAILABLE": Advice(
        NOTHING, "NEVER", "`problem` says what this server lacks; ask one that runs agents."
    ),
    "SESSION_BUSY": Advice(
        NOTHING,
        "NEVER",
        "`problem` says why. `not_over`: wait for the run it names (WaitAction), or say with `on_busy` that this one "
        "waits for it, or takes its place. `line_full`: 16 wait already; `needs_approval`: people have to say yes to "
        "this one, so it cannot wait: send it again once that run is over. `not_cancelled`: close with "
        "`cancel_active`.",
    ),
    "SESSION_CLOSED": Advice(NOTHING, "NEVER", "Begin another session."),
    "RESUME_TOKEN_SPENT": Advice(
        NOTHING,
        "NEVER",
        "If you have not used it, somebody else goes on with the session; GetSession and ListMessages tell.",
    ),
    "DURABILITY_UNAVAILABLE": Advice(NOTHING, "NEVER", "Call a server that keeps more, or require less."),
    "APPROVAL_REQUIRED": Advice(
        WAITS,
        "AFTER_WAIT",
        "Have people decide it, then ask again with the same key, or WaitAction. `on_wait` HOLD waits for "
        "them.",
    ),
    "INPUT_REQUIRED": Advice(
        WAITS,
        "AFTER_WAIT",
        "Have somebody answer it, then ask again with the same key, or WaitAction. `on_wait` HOLD waits for "
        "the answer.",
    ),
    "APPROVAL_DENIED": Advice(
        READ_OR, "NEW_KEY", "GetApproval says who said no and why, and what they would rather see."
    ),
    "APPROVAL_REVOKED": Advice(READ_OR, "NEW_KEY", "Ask whoever took the vote back, then ask anew."),
    "APPROVAL_EXPIRED": Advice(
        READ_OR,
        "NEW_KEY",
        "Ask anew, and see that enough people look in time; `ttl` of the terms says how long they have.",
    ),
    "NOT_ELIGIBLE": Advice(
        "the action is untouched",
        "NEVER",
        "`problem` says why; somebody else has to decide, or you by another login.",
    ),
    "DECISION_CONFLICT": Advice(
        "the action is untouched",
        "NEVER",
        "GetApproval shows the votes. A new decision needs a new decision id.",
    ),
    "IDEMPOTENCY_CONFLICT": Advice(
        "the action that holds the key is untouched", "NEVER", "A new request needs a new key."
    ),
    "HANDLER_FAILED": Advice(
        "NOT_DONE or DONE, as the handler said",
        "SAME_KEY if temporary and not done, NEVER if done, else NEW_KEY",
        "Decide by `failure_code`. On UNAVAILABLE the key is free: the same request starts a new action.",
    ),
    "OUTPUT_SCHEMA_VIOLATION": Advice(
        "DONE; unset for READ",
        "NEVER; NEW_KEY for READ",
        "The handler or its schema is wrong: tell the author.",
    ),
    "CONNECTOR_UNAVAILABLE": Advice(
        READ_OR,
        "SAME_KEY; NEW_KEY if the key keeps it",
        "Send the same request again, with a growing pause. `failure_code` says what is wrong with the connector: see "
        "[connectors.md](connectors.md).",
    ),
    "CANCELLED_BY_CALLER": Advice(READ_OR, "NEW_KEY", "Nothing, or ask again with a new key."),
    "DEADLINE_EXCEEDED": Advice(
        f"{READ_OR}; no action when the deadline had passed already",
        "NEW_KEY; none without an action",
        "Allow more time: the RPC deadline, `options.timeout`, or the contract's `timeout_max`.",
    ),
    "SHUTDOWN": Advice(
        READ_OR, "NEW_KEY", "Ask again with a new key. A READ without a key ends so after a crash."
    ),
    "RETRY_BUDGET": Advice(READ_OR, "NEW_KEY", "Find out why before you ask again, or redrive it."),
    "TURN_BUDGET": Advice(_OF_STEPS, "NEW_KEY", _NEW_RUN.format("`turns`")),
    "LOOP_BUDGET": Advice(_OF_STEPS, "NEW_KEY", _NEW_RUN.format("`calls` or `equal_calls`")),
    "SPEND_BUDGET": Advice(_OF_STEPS, "NEW_KEY", _NEW_RUN.format("`tokens`, `cost_micros` or `active_time`")),
    "QUEUE_DELAY": Advice(
        READ_OR, "NEW_KEY", "Start more servers or slots for the queue, or allow a longer `queue_delay_max`."
    ),
    "EFFECT_AMBIGUOUS": Advice(
        "UNKNOWN",
        "AFTER_WAIT",
        "Look at the provider. A new key may have the effect twice. `cause` says how the attempt ended. Say by "
        "ResolveAmbiguous what you found.",
    ),
    "DUPLICATE_REFUSED": Advice(
        "that of the action that holds the key",
        "that of its outcome",
        "GetAction shows what became of the key.",
    ),
    "QUOTA_EXCEEDED": Advice(
        "no outcome is recorded",
        "the same request with its key, after `RetryInfo`",
        "Ask for less at a time, or the operator for more; `QuotaFailure` names the quota. Of `open_sessions` close "
        "some: those are yours alone.",
    ),
    "OVERLOADED": Advice(
        NOTHING,
        "the same request, after `RetryInfo`",
        "Come back later, with a growing pause. `limit` says what is full: the server, or what a contract allows.",
    ),
    "STORE_UNAVAILABLE": Advice(
        "no outcome is recorded; a row that was written all the same is released by its owner",
        "the same request with its key, after `RetryInfo`",
        "Send it again. Without a key a READ may then run twice.",
    ),
    "MESSAGE_REPLAYED": Advice(
        NOTHING,
        "NEVER",
        "A new message needs an id of its own and the time at which it is made; check the clock.",
    ),
    "AUTHORITY_UNAVAILABLE": Advice(
        "nothing was decided",
        "the same decision, after `RetryInfo`",
        "See what `PLACET_AUTHORITY_URL` answers.",
    ),
    "WAIT_EXPIRED": Advice(
        "NOT_DONE or UNKNOWN so far; unset for READ",
        "SAME_KEY with a key, else AFTER_WAIT",
        "Ask again with the same key, or WaitAction.",
    ),
    "DRAINING": Advice(
        "nothing new was started",
        "the same request, after `RetryInfo`",
        "Another server, or this one later, takes it.",
    ),
    "INTERNAL": Advice(
        "not known",
        "NEVER, as no outcome is sent; the key tells",
        "GetAction by key; give the operator `incident_id`.",
    ),
    "STATE_CONFLICT": Advice(
        "the action is untouched",
        "NEVER",
        "GetAction shows how it stands; `rule` says what stands against it.",
    ),
    "JOURNAL_MISMATCH": Advice(
        "the step's action is untouched",
        "NEVER",
        "A step is one action for good: call another capability, or with other input, under another name of a step.",
    ),
    "CHILD_LIMIT": Advice(NOTHING, "NEVER", "Call fewer actions in one attempt, or from fewer levels."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason as the contract describes it."""

    name: str
    comment: str
    sample: str


def reasons() -> list[Reason]:
    """In the contract's order. Raises ValueError for a comment without sample metadata."""
    found = []
    for comment, name in _REASON.findall(PROTO.read_text(encoding="utf-8")):
        text = " ".join(line.strip().removeprefix("//").strip() for line in comment.strip().splitlines())
        sample = _SAMPLE.search(text)
        if sample is None:
            if name == "UNSPECIFIED":
                continue
            raise ValueError(f"{name} shows no sample metadata")
        found.append(Reason(name=name, comment=text[: sample.start()].strip(), sample=sample[1]))
    return found


def classes() -> dict[str, type[errors.PlacetError]]:
    """The server's exception class of each reason."""
    modules = (
        errors,
        budget_errors,
        ending_errors,
        child_errors,
        connector_errors,
        decision_errors,
        gate_errors,
        identity_errors,
        policy_errors,
        run_errors,
    )
    members = [each for module in modules for each in vars(module).values()]
    found = [each for each in members if isinstance(each, type) and issubclass(each, errors.PlacetError)]
    return {each.reason: each for each in found if each is not errors.PlacetError}


def _error_table() -> Iterator[str]:
    yield "| reason | code | retry advice | Python |"
    yield "|---|---|---|---|"
    for reason in reasons():
        code = classes()[reason.name].code.value
        if reason.name == "HANDLER_FAILED":
            code += ", UNAVAILABLE"
        exception = EXCEPTIONS[reason.name].__name__
        link = f"[`{reason.name}`](#{reason.name.lower()})"
        yield f"| {link} | {code} | {ADVICE[reason.name].retry} | `{exception}` |"


def _error_sections() -> Iterator[str]:
    for reason in reasons():
        advice = ADVICE[reason.name]
        yield f"### {reason.name}"
        yield ""
        yield reason.comment
        yield ""
        yield f"- Metadata: `{reason.sample}`"
        yield f"- Effect: {advice.effect}."
        yield f"- Retry: {advice.retry}."
        yield f"- {advice.todo}"
        yield ""


def _settings() -> Iterator[str]:
    yield "| variable | meaning | default |"
    yield "|---|---|---|"
    for name, field in Config.model_fields.items():
        yield f"| `PLACET_{name.upper()}` | {field.description} | {_default(field.default)} |"


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    if value is None or value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _metrics() -> Iterator[str]:
    metrics = Metrics()
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for kind, families in (("histogram", metrics.histograms), ("counter", metrics.counters)):
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            yield f"| `{family.name}` | {kind} | {labels} | {family.help} |"


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "reasons": _error_table,
    "details": _error_sections,
    "settings": _settings,
    "metrics": _metrics,
}


def documents() -> list[Path]:
    return sorted((ROOT / "docs").glob("*.md"))


def written(text: str) -> str:
    """The document with its generated parts as the code says now."""
    return _PART.sub(lambda part: part[1] + "".join(f"{line}\n" for line in PARTS[part[2]]()) + part[3], text)


def main() -> int:
    stale = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if (new := written(text)) == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    print("\n".join(stale) or "up to date")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
