"""Manifests, capabilities and contracts to model and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placet.v1 import capability_pb2 as pb
from placet_server.model.agent import TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_MAX_DEFAULT
from placet_server.model.ask import INPUT_SCHEMA_TEXT
from placet_server.model.capability import Capability, CapabilityKind, Presentation
from placet_server.model.contract import (
    PAYLOAD_BYTES_HARD_MAX,
    Backoff,
    Contract,
    CredentialRule,
    DataRule,
    EffectClass,
    Hazard,
    IdempotencyRule,
    KeyRequirement,
    KeyScope,
    Limits,
    Reconcile,
    Risk,
    attempts_max_default,
    key_requirement_default,
)
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.manifest import ConnectorAddress, LocalApp, Manifest
from placet_server.rpc.convert.agent import agent_message, agent_of, agent_violations
from placet_server.rpc.convert.approval import terms_message, terms_of
from placet_server.rpc.convert.enumeration import members, numbers
from placet_server.rpc.convert.time import duration, seconds

KIND = numbers(pb.CapabilityKind, "CAPABILITY_KIND_", CapabilityKind)
KIND_MEMBER = members(pb.CapabilityKind, "CAPABILITY_KIND_", CapabilityKind)
EFFECT = numbers(pb.EffectClass, "EFFECT_CLASS_", EffectClass)
EFFECT_MEMBER = members(pb.EffectClass, "EFFECT_CLASS_", EffectClass)
HAZARD = numbers(pb.Hazard, "HAZARD_", Hazard)
HAZARD_MEMBER = members(pb.Hazard, "HAZARD_", Hazard)
RISK = numbers(pb.Risk, "RISK_", Risk)
RISK_MEMBER = members(pb.Risk, "RISK_", Risk)
KEY_REQUIREMENT = numbers(pb.KeyRequirement, "KEY_REQUIREMENT_", KeyRequirement)
KEY_REQUIREMENT_MEMBER = members(pb.KeyRequirement, "KEY_REQUIREMENT_", KeyRequirement)
KEY_SCOPE = numbers(pb.KeyScope, "KEY_SCOPE_", KeyScope)
KEY_SCOPE_MEMBER = members(pb.KeyScope, "KEY_SCOPE_", KeyScope)

_LIMITS = Limits()
_AGENT_LIMITS = Limits(
    timeout_default_seconds=TIMEOUT_SECONDS_DEFAULT,
    timeout_max_seconds=TIMEOUT_SECONDS_MAX_DEFAULT,
    input_bytes_max=PAYLOAD_BYTES_HARD_MAX,
)
_BACKOFF_SPANS = {
    "initial_delay": "initial_delay_seconds",
    "delay_max": "delay_seconds_max",
    "elapsed_max": "elapsed_seconds_max",
}


def manifest_of(message: pb.Manifest) -> Manifest:
    """Unset members get the contract's defaults. Raises MalformedRequest where there is none."""
    problems: list[FieldViolation] = []
    for index, capability in enumerate(message.capabilities):
        path = f"manifest.capabilities[{index}]"
        problems += _required(capability, f"{path}.contract")
        problems += agent_violations(capability.agent, f"{path}.agent")
    if problems:
        raise MalformedRequest(violations=tuple(problems))
    return Manifest(
        name=message.name,
        version=message.version,
        capabilities=tuple(_capability_of(capability) for capability in message.capabilities),
        runs=LocalApp(app=message.local.app),
        connector=_address_of(message.connector) if message.HasField("connector") else None,
    )


def manifest_message(manifest: Manifest) -> pb.Manifest:
    message = pb.Manifest(
        name=manifest.name,
        version=manifest.version,
        capabilities=[capability_message(capability) for capability in manifest.capabilities],
    )
    address = manifest.connector
    if address is None:
        message.local.CopyFrom(pb.LocalHandlers(app=manifest.runs.app))
    else:
        message.connector.CopyFrom(
            pb.ConnectorAddress(
                target=address.target,
                tls_server_name=address.tls_server_name,
                plaintext=address.plaintext,
            )
        )
    return message


def _address_of(message: pb.ConnectorAddress) -> ConnectorAddress:
    return ConnectorAddress(
        target=message.target, tls_server_name=message.tls_server_name, plaintext=message.plaintext
    )


def capability_message(capability: Capability, *, with_schemas: bool = True) -> pb.Capability:
    """Without schemas also without an agent's instructions."""
    shown = capability.presentation
    spec = capability.agent
    return pb.Capability(
        name=capability.name,
        version=capability.version,
        kind=KIND[capability.kind],
        input_schema_json=capability.input_schema if with_schemas else "",
        output_schema_json=capability.output_schema if with_schemas else "",
        contract=_contract_message(capability.contract),
        presentation=pb.Presentation(
            title=shown.title,
            description=shown.description,
            key_fields=shown.key_fields,
            documentation_url=shown.documentation_url,
        ),
        agent=None if spec is None else agent_message(spec, with_instructions=with_schemas),
    )


def _required(capability: pb.Capability, path: str) -> list[FieldViolation]:
    problems = []
    if not capability.contract.effect:
        problems.append(
            FieldViolation(
                field=f"{path}.effect", rule="required", description="say whether repeating is safe"
            )
        )
    if capability.contract.HasField("approval"):
        try:
            terms_of(capability.contract.approval, f"{path}.approval")
        except MalformedRequest as error:
            problems += error.violations
    if 0 in capability.contract.hazards:
        problems.append(
            FieldViolation(
                field=f"{path}.hazards", rule="enum.not_in", description="HAZARD_UNSPECIFIED is none"
            )
        )
    return problems


def _capability_of(message: pb.Capability) -> Capability:
    shown = message.presentation
    kind = KIND_MEMBER.get(message.kind, CapabilityKind.TOOL)
    is_agent = kind is CapabilityKind.AGENT
    return Capability(
        name=message.name,
        version=message.version,
        kind=kind,
        input_schema=message.input_schema_json or (INPUT_SCHEMA_TEXT if is_agent else ""),
        output_schema=message.output_schema_json,
        contract=_contract_of(message.contract, _AGENT_LIMITS if is_agent else _LIMITS),
        presentation=Presentation(
            title=shown.title,
            description=shown.description,
            key_fields=tuple(shown.key_fields),
            documentation_url=shown.documentation_url,
        ),
        agent=agent_of(message.agent) if message.HasField("agent") else None,
    )


def _contract_of(message: pb.Contract, limits: Limits) -> Contract:
    """`limits`: what holds where it says nothing."""
    effect = EFFECT_MEMBER[message.effect]
    credentials = message.credentials
    return Contract(
        effect=effect,
        effect_key_ttl_seconds=seconds(message.effect_key_ttl)
        if message.HasField("effect_key_ttl")
        else None,
        effect_marked=message.effect_marked,
        hazards=frozenset(HAZARD_MEMBER[number] for number in message.hazards),
        risk=RISK_MEMBER.get(message.risk, Risk.LOW),
        idempotency=_idempotency_of(message.idempotency, effect),
        attempts_max=message.retry.attempts_max or attempts_max_default(effect, marked=message.effect_marked),
        retry=_backoff_of(message.retry),
        reconcile=_reconcile_of(message.reconcile) if message.HasField("reconcile") else None,
        limits=_limits_of(message.limits, limits),
        approval=terms_of(message.approval, "approval") if message.HasField("approval") else None,
        no_approval_reason=message.no_approval.reason if message.HasField("no_approval") else None,
        credentials=CredentialRule(
            required=credentials.required,
            issuers=tuple(credentials.issuers),
            scopes=tuple(credentials.scopes),
        ),
        data=DataRule(sensitive_paths=tuple(message.data.sensitive_paths)),
        cancellable=message.cancellable,
        streaming=message.streaming,
    )


def _idempotency_of(message: pb.IdempotencyRule, effect: EffectClass) -> IdempotencyRule:
    requirement = KEY_REQUIREMENT_MEMBER.get(message.requirement, key_requirement_default(effect))
    given: dict[str, Any] = {"ttl_seconds": seconds(message.ttl)} if message.HasField("ttl") else {}
    return IdempotencyRule(
        requirement=requirement, scope=KEY_SCOPE_MEMBER.get(message.scope, KeyScope.PRINCIPAL), **given
    )


def _backoff_of(message: pb.RetryRule) -> Backoff | None:
    """None if nothing is said: a default that is spelled out would change the contract's digest."""
    given: dict[str, float] = {}
    for member, name in _BACKOFF_SPANS.items():
        if message.HasField(member):  # type: ignore[arg-type]
            given[name] = seconds(getattr(message, member))
    if message.multiplier:
        given["multiplier"] = message.multiplier
    return Backoff(**given) if given else None


def _reconcile_of(message: pb.ReconcileRule) -> Reconcile:
    given: dict[str, Any] = {}
    if message.HasField("automatic"):
        given["automatic"] = message.automatic
    for member, name in _BACKOFF_SPANS.items():
        if message.HasField(member):  # type: ignore[arg-type]
            given[name] = seconds(getattr(message, member))
    return Reconcile(**given)


def _limits_of(message: pb.Limits, unsaid: Limits) -> Limits:
    given: dict[str, Any] = {}
    if message.HasField("queue_delay_max"):
        given["queue_delay_seconds_max"] = seconds(message.queue_delay_max)
    if message.HasField("timeout_default"):
        given["timeout_default_seconds"] = seconds(message.timeout_default)
    if message.HasField("timeout_max"):
        given["timeout_max_seconds"] = seconds(message.timeout_max)
    if message.rate_max:
        given["rate_max"] = message.rate_max
    return replace(
        unsaid,
        input_bytes_max=message.input_bytes_max or unsaid.input_bytes_max,
        output_bytes_max=message.output_bytes_max or unsaid.output_bytes_max,
        concurrency_max=message.concurrency_max or None,
        **given,
    )


def _contract_message(contract: Contract) -> pb.Contract:
    rule, limits = contract.idempotency, contract.limits
    message = pb.Contract(
        effect=EFFECT[contract.effect],
        hazards=sorted(HAZARD[hazard] for hazard in contract.hazards),
        risk=RISK[contract.risk],
        idempotency=pb.IdempotencyRule(
            requirement=KEY_REQUIREMENT[rule.requirement],
            scope=KEY_SCOPE[rule.scope],
            ttl=duration(rule.ttl_seconds),
        ),
        retry=pb.RetryRule(attempts_max=contract.attempts_max),
        limits=pb.Limits(
            timeout_default=duration(limits.timeout_default_seconds),
            timeout_max=duration(limits.timeout_max_seconds),
            input_bytes_max=limits.input_bytes_max,
            output_bytes_max=limits.output_bytes_max,
            concurrency_max=limits.concurrency_max or 0,
            rate_max=limits.rate_max or 0.0,
        ),
        credentials=pb.CredentialRule(
            required=contract.credentials.required,
            issuers=contract.credentials.issuers,
            scopes=contract.credentials.scopes,
        ),
        data=pb.DataRule(sensitive_paths=contract.data.sensitive_paths),
        cancellable=contract.cancellable,
        streaming=contract.streaming,
        effect_marked=contract.effect_marked,
    )
    if contract.retry is not None:
        _fill_backoff(message.retry, contract.retry)
    if (rule_of_lookup := contract.reconcile) is not None:
        message.reconcile.automatic = rule_of_lookup.automatic
        for member, name in _BACKOFF_SPANS.items():
            getattr(message.reconcile, member).CopyFrom(duration(getattr(rule_of_lookup, name)))
    if limits.queue_delay_seconds_max is not None:
        message.limits.queue_delay_max.CopyFrom(duration(limits.queue_delay_seconds_max))
    if contract.effect_key_ttl_seconds is not None:
        message.effect_key_ttl.CopyFrom(duration(contract.effect_key_ttl_seconds))
    if contract.approval is not None:
        message.approval.CopyFrom(terms_message(contract.approval))
    if contract.no_approval_reason is not None:
        message.no_approval.reason = contract.no_approval_reason
    return message


def _fill_backoff(message: pb.RetryRule, backoff: Backoff) -> None:
    message.multiplier = backoff.multiplier
    for member, name in _BACKOFF_SPANS.items():
        span = getattr(backoff, name)
        if span is not None:
            getattr(message, member).CopyFrom(duration(span))
