"""The built-in capabilities that govern, declared as any tool is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from placet.app import App
from placet.context import Context
from placet_server.core.admission.builtin import BUILT_IN_MANIFEST
from placet_server.core.admission.policy_set import ADMIT_POLICY_SET, PolicySets
from placet_server.core.governance.catalog import AdmitManifest, WithdrawCapability
from placet_server.core.governance.governor import Governor
from placet_server.core.governance.policy import AdmitPolicySet, RollBackPolicySet
from placet_server.core.governance.recovery import Redrive, ResolveAmbiguous
from placet_server.core.governance.use import Use
from placet_server.core.kernel import Kernel
from placet_server.model.contract import PAYLOAD_BYTES_HARD_MAX

ADMIT_MANIFEST = "placet.catalog.admit"
WITHDRAW_CAPABILITY = "placet.catalog.withdraw"
ROLL_BACK_POLICY_SET = "placet.policy.roll_back"
RESOLVE_AMBIGUOUS = "placet.recovery.resolve"
REDRIVE = "placet.recovery.redrive"

# Longer than any attempt: what was done is found by its action for as long as that is kept.
EFFECT_KEY_TTL = timedelta(days=365)
NO_APPROVAL = "The policies of the tenant say who has to agree."

Schema = dict[str, Any]
_STRING: Schema = {"type": "string"}
_STRINGS: Schema = {"type": "array", "items": _STRING}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_DIGEST: Schema = {"type": "string", "pattern": "^([0-9a-f]{64})?$"}
_ID: Schema = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}
_REASON: Schema = {"type": "string", "maxLength": 512}


def uses_of(kernel: Kernel) -> dict[str, Use]:
    """By capability."""
    sets = policy_sets(kernel)
    return {
        ADMIT_MANIFEST: AdmitManifest(kernel.catalog),
        WITHDRAW_CAPABILITY: WithdrawCapability(kernel.catalog),
        ADMIT_POLICY_SET: AdmitPolicySet(sets),
        ROLL_BACK_POLICY_SET: RollBackPolicySet(sets),
        RESOLVE_AMBIGUOUS: ResolveAmbiguous(kernel),
        REDRIVE: Redrive(kernel),
    }


def policy_sets(kernel: Kernel) -> PolicySets:
    """Checked against what is built in, too."""
    journal = kernel.journal
    return PolicySets(journal.pool, kernel.policies, journal.clock, built_in=kernel.catalog.built_in)


def governing_app(governor: Governor) -> App:
    """The tools, whose handlers are the governor's."""
    app = App(BUILT_IN_MANIFEST)
    _declare_catalog(app, governor)
    _declare_policy(app, governor)
    _declare_recovery(app, governor)
    return app


def _declare_catalog(app: App, governor: Governor) -> None:
    _declare(
        app,
        governor,
        ADMIT_MANIFEST,
        "Admit a manifest",
        _object(
            {"manifest": {"type": "object"}, "expected_digest": _DIGEST},
            {
                "name": _STRING,
                "digest": _STRING,
                "replaces": _STRING,
                "first": _FLAG,
                "weakenings": _NUMBER,
                "weakened": _STRINGS,
                "adds_hazards": _STRINGS,
                "restores": _FLAG,
            },
            required=["manifest"],
        ),
        key_fields=("name", "digest", "replaces", "weakened", "adds_hazards"),
    )
    _declare(
        app,
        governor,
        WITHDRAW_CAPABILITY,
        "Withdraw a capability",
        _object(
            {
                "name": {"type": "string", "minLength": 1, "maxLength": 128},
                "version": {"type": "string", "maxLength": 32},
                "reason": _REASON,
            },
            {"versions": _STRINGS},
            required=["name"],
        ),
        key_fields=("name", "versions", "reason"),
    )


def _declare_policy(app: App, governor: Governor) -> None:
    asked: Schema = {"tenant": {"enum": ["", "-"]}, "expected_digest": _DIGEST}
    found: Schema = {"name": _STRING, "digest": _STRING, "replaces": _STRING, "first": _FLAG}
    _declare(
        app,
        governor,
        ADMIT_POLICY_SET,
        "Put a policy set in force",
        _object(asked | {"policy_set": {"type": "object"}}, found, required=["policy_set"]),
        key_fields=("tenant", "name", "digest", "replaces"),
    )
    _declare(
        app,
        governor,
        ROLL_BACK_POLICY_SET,
        "Go back to an older policy set",
        _object(asked | {"revision": _NUMBER | {"minimum": 0}}, found, required=["revision"]),
        key_fields=("tenant", "revision", "name", "digest", "replaces"),
    )


def _declare_recovery(app: App, governor: Governor) -> None:
    needed = {"type": "string", "minLength": 1, "maxLength": 512}
    _declare(
        app,
        governor,
        RESOLVE_AMBIGUOUS,
        "Resolve an effect in doubt",
        _object(
            {
                "action_id": _ID,
                "finding": {"enum": ["DONE", "NOT_DONE"], "type": "string"},
                "output": {},
                "reason": needed,
                "evidence": needed,
                "expected_attempt": _NUMBER | {"minimum": 0},
            },
            {"capability": _STRING, "attempt": _NUMBER},
            required=["action_id", "finding", "reason", "evidence"],
        ),
        key_fields=("action_id", "capability", "finding", "reason", "evidence"),
    )
    short = {"type": "string", "maxLength": 64}
    names = {"type": "array", "items": {"type": "string", "maxLength": 128}, "maxItems": 32}
    matching = _object({"capabilities": names, "queue": short, "reason": short}, {})
    _declare(
        app,
        governor,
        REDRIVE,
        "Redrive dead letters",
        _object(
            {
                "action_ids": {
                    "type": "array",
                    "items": _ID,
                    "maxItems": 1000,
                    "minItems": 1,
                    "uniqueItems": True,
                },
                "matching": matching,
                "count_max": _NUMBER | {"minimum": 1, "maximum": 1000},
                "attempts": _NUMBER | {"minimum": 0, "maximum": 100},
                "reason": _REASON,
            },
            {"selected": _STRINGS, "passed_over": _STRINGS, "redrives": _NUMBER, "capabilities": _STRINGS},
        ),
        key_fields=("redrives", "capabilities", "matching", "action_ids", "reason"),
    )


def _declare(
    app: App,
    governor: Governor,
    name: str,
    title: str,
    input_schema: Schema,
    *,
    key_fields: tuple[str, ...],
) -> None:
    app.tool(
        name,
        "idempotent",
        title=title,
        key_fields=key_fields,
        input_schema=input_schema,
        description=f"{title}. Asked for by the RPC of that name; docs/governance.md tells the rest.",
        key="optional",
        key_ttl=timedelta(days=30),
        effect_key_ttl=EFFECT_KEY_TTL,
        hazards=["write"],
        risk="medium",
        no_approval=NO_APPROVAL,
        timeout=60,
        timeout_max=120,
        input_bytes_max=PAYLOAD_BYTES_HARD_MAX,
        output_bytes_max=PAYLOAD_BYTES_HARD_MAX,
        attempts_max=5,
        cancellable=False,
    )(_handler(governor))


def _handler(governor: Governor) -> Callable[[Context, Any], Awaitable[Any]]:
    async def handle(context: Context, members: Any) -> Any:
        return await governor.handle(context, members)

    return handle


def _object(asked: Schema, found: Schema, *, required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": asked | found,
        "required": required or [],
        "additionalProperties": False,
    }
