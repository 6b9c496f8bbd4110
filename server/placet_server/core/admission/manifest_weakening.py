"""What a manifest takes back of what the one before promised.

Warnings only: whoever admits it shall have seen them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from placet_server.model.agent_change import widened
from placet_server.model.approval import Terms
from placet_server.model.approval_change import loosened
from placet_server.model.capability import Capability
from placet_server.model.contract import Backoff, Contract, EffectClass, KeyRequirement, Reconcile, Risk
from placet_server.model.json_schema_narrow import is_narrower
from placet_server.model.manifest import Manifest, Problem

_EFFECTS = list(EffectClass)
_RISKS = list(Risk)


@dataclass(frozen=True, slots=True)
class _Weakening:
    member: str
    code: str
    message: str


def weakenings(
    manifest: Manifest, previous: Manifest | None, withdrawn: frozenset[tuple[str, str]] = frozenset()
) -> Iterator[Problem]:
    """One warning per promise taken back, by the current version of each name; and per withdrawn version that would be
    back in service.
    """
    for index, capability in enumerate(manifest.capabilities):
        if (capability.name, capability.version) in withdrawn:
            text = f"{capability.name} version {capability.version} was withdrawn, and would be back."
            yield Problem(
                path=f"capabilities[{index}].version", code="version_restored", message=text, warning=True
            )
    if previous is None:
        return
    current = {c.name: (index, c) for index, c in enumerate(manifest.capabilities)}
    for old in {c.name: c for c in previous.capabilities}.values():
        if old.name not in current:
            text = f"{old.name} is no longer offered; actions pinned to it keep their version."
            yield Problem(path="capabilities", code="capability_removed", message=text, warning=True)
            continue
        index, new = current[old.name]
        for found in _of_capability(old, new):
            path = f"capabilities[{index}].{found.member}"
            message = f"{found.message} (before: version {old.version})"
            yield Problem(path=path, code=found.code, message=message, warning=True)


def _of_capability(old: Capability, new: Capability) -> Iterator[_Weakening]:
    # A schema that is no JSON has a problem of its own.
    if new.contract_digest_or_none is not None:
        for member, before, after in (
            ("input", old.input_schema_value, new.input_schema_value),
            ("output", old.output_schema_value, new.output_schema_value),
        ):
            if not is_narrower(True if after is None else after, True if before is None else before):
                text = f"The {member} schema may let through what it did not."
                yield _Weakening(f"{member}_schema_json", f"{member}_schema_changed", text)
    for found in _of_contract(old.contract, new.contract):
        yield _Weakening(f"contract.{found.member}", found.code, found.message)
    if new.kind is not old.kind:
        yield _Weakening("kind", "kind_changed", f"It was {old.kind} and is {new.kind}.")
    if old.agent is not None and new.agent is not None:
        for each in widened(old.agent, new.agent):
            yield _Weakening(f"agent.{each.member}", each.code, each.message[:512])


def _of_contract(old: Contract, new: Contract) -> Iterator[_Weakening]:
    yield from _of_effect(old, new)
    yield from _of_reconcile(old, new)
    yield from _of_keys(old, new)
    yield from _of_limits(old, new)
    yield from _of_protection(old, new)


def _of_effect(old: Contract, new: Contract) -> Iterator[_Weakening]:
    before, after = _EFFECTS.index(old.effect), _EFFECTS.index(new.effect)
    if after > before:
        yield _Weakening(
            "effect", "effect_weaker", f"{old.effect} is now {new.effect}: repeating is less safe."
        )
    elif after < before:
        text = f"{old.effect} is now {new.effect}: what was not repeated may be."
        yield _Weakening("effect", "effect_claims_more", text)
    if (new.effect_key_ttl_seconds or 0) > (old.effect_key_ttl_seconds or 0) and old.effect is new.effect:
        text = "The provider is now trusted to remember our key for longer."
        yield _Weakening("effect_key_ttl", "effect_key_ttl_raised", text)
    if new.effect_marked and not old.effect_marked:
        text = "A stopped attempt that has not marked its effect now counts as not done."
        yield _Weakening("effect_marked", "effect_marked_added", text)
    if new.attempts_max > old.attempts_max:
        text = f"{new.attempts_max} attempts instead of {old.attempts_max}."
        yield _Weakening("retry.attempts_max", "attempts_raised", text)
    if _elapsed_seconds_max(new) > _elapsed_seconds_max(old):
        yield _Weakening("retry.elapsed_max", "retry_longer", "Failed attempts are repeated for longer.")


def _of_reconcile(old: Contract, new: Contract) -> Iterator[_Weakening]:
    before, after = old.reconcile or Reconcile(), new.reconcile or Reconcile()
    if before.automatic and not after.automatic:
        text = "The server no longer asks the lookup by itself."
        yield _Weakening("reconcile.automatic", "reconcile_automatic_dropped", text)
    elif after.elapsed_seconds_max < before.elapsed_seconds_max:
        yield _Weakening("reconcile.elapsed_max", "reconcile_shorter", "The lookup is given up sooner.")


def _elapsed_seconds_max(contract: Contract) -> float:
    return (contract.retry or Backoff()).elapsed_seconds_max or math.inf


def _of_keys(old: Contract, new: Contract) -> Iterator[_Weakening]:
    before, after = old.idempotency, new.idempotency
    if before.requirement is not after.requirement and after.requirement is not KeyRequirement.REQUIRED:
        text = f"A key was {before.requirement} and is {after.requirement}."
        yield _Weakening("idempotency.requirement", "key_requirement_dropped", text)
    if before.scope is not after.scope:
        text = f"Keys were shared by {before.scope} and are by {after.scope}: known keys are not found again."
        yield _Weakening("idempotency.scope", "key_scope_changed", text)
    if after.ttl_seconds < before.ttl_seconds:
        yield _Weakening("idempotency.ttl", "key_ttl_shortened", "Keys are forgotten sooner.")


def _of_limits(old: Contract, new: Contract) -> Iterator[_Weakening]:
    before, after = old.limits, new.limits
    for member, was, becomes, code in (
        ("timeout_default", before.timeout_default_seconds, after.timeout_default_seconds, "timeout_raised"),
        ("timeout_max", before.timeout_max_seconds, after.timeout_max_seconds, "timeout_raised"),
        ("input_bytes_max", before.input_bytes_max, after.input_bytes_max, "bytes_raised"),
        ("output_bytes_max", before.output_bytes_max, after.output_bytes_max, "bytes_raised"),
    ):
        if becomes > was:
            yield _Weakening(f"limits.{member}", code, f"{member} is {becomes:g} instead of {was:g}.")
    if (after.queue_delay_seconds_max or math.inf) > (before.queue_delay_seconds_max or math.inf):
        text = "A submitted action may begin later than before."
        yield _Weakening("limits.queue_delay_max", "queue_delay_raised", text)
    if (after.concurrency_max or math.inf) > (before.concurrency_max or math.inf):
        yield _Weakening("limits.concurrency_max", "concurrency_raised", "More may run at once than before.")
    if (after.rate_max or math.inf) > (before.rate_max or math.inf):
        yield _Weakening("limits.rate_max", "rate_raised", "More may begin in a second than before.")


def _of_protection(old: Contract, new: Contract) -> Iterator[_Weakening]:
    if removed := sorted(old.hazards - new.hazards):
        yield _Weakening("hazards", "hazards_removed", f"No longer named: {', '.join(removed)}.")
    if _RISKS.index(new.risk) < _RISKS.index(old.risk):
        yield _Weakening("risk", "risk_lowered", f"{old.risk} is now {new.risk}.")
    yield from _of_approval(old.approval, new.approval)
    if new.no_approval_reason is not None and new.no_approval_reason != old.no_approval_reason:
        text = "The reason for running without approval is new."
        yield _Weakening("no_approval.reason", "no_approval_reason_changed", text)
    before, after = old.credentials, new.credentials
    if before.required and not after.required:
        yield _Weakening("credentials.required", "credential_dropped", "No credential is required any more.")
    if before.issuers and (not after.issuers or set(after.issuers) - set(before.issuers)):
        yield _Weakening("credentials.issuers", "credential_issuers_widened", "More issuers are accepted.")
    if gone := sorted(set(before.scopes) - set(after.scopes)):
        yield _Weakening(
            "credentials.scopes", "credential_scopes_removed", f"No longer needed: {', '.join(gone)}."
        )
    if bare := sorted(set(old.data.sensitive_paths) - set(new.data.sensitive_paths)):
        text = f"No longer protected: {', '.join(bare)}."
        yield _Weakening("data.sensitive_paths", "sensitive_paths_removed", text[:512])
    if old.cancellable and not new.cancellable:
        yield _Weakening(
            "cancellable", "cancellable_dropped", "The handler no longer stops soon when cancelled."
        )
    if old.streaming and not new.streaming:
        yield _Weakening("streaming", "streaming_dropped", "The handler no longer sends chunks.")


def _of_approval(old: Terms | None, new: Terms | None) -> Iterator[_Weakening]:
    if old is None:
        return
    if new is None:
        yield _Weakening("approval", "approval_removed", "Nobody needs to approve it any more.")
        return
    for found in loosened(old, new):
        yield _Weakening(f"approval.{found.member}", found.code, found.message[:512])
