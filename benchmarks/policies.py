"""A policy set such as a tenant of some size has.

One policy in ten reads the input, of one tool after the other, so a third of those are asked at each call of the one
under load. All others apply to every call, and look at roles, at risk and at hazards."""

from __future__ import annotations

from benchmarks.noop_app import CAPABILITY, STREAM, TICK
from placet.client import Client
from placet.policy import PolicySet

_OF_INPUT = (
    (CAPABILITY, 'context.input.quantity > {0} || context.input.currency == "X{0}"'),
    (STREAM, "context.input.chunks > {0}000"),
    (TICK, "context.input.chunks > {0}000"),
)


def admit_policies(client: Client, count: int) -> None:
    """In force everywhere a second later."""
    client.admit_policy_set(PolicySet("benchmark", policies_of(count)))


def policies_of(count: int) -> str:
    return "\n".join(_policy(number) for number in range(count))


def _policy(number: int) -> str:
    name = f'@id("rule-{number}")'
    if number == 0:
        return f"{name} permit (principal, action, resource);"
    if number % 10 == 1:
        tool, condition = _OF_INPUT[number // 10 % len(_OF_INPUT)]
        return (
            f'{name} forbid (principal, action == Action::"{tool}", resource) '
            f"when {{ {condition.format(1000 + number)} }};"
        )
    if number % 10 < 5:
        return (
            f'{name} forbid (principal in Role::"role-{number}", action in Action::"benchmark", resource) '
            "when { resource.risk >= 3 };"
        )
    return (
        f'{name} forbid (principal, action, resource) when {{ resource.hazards.contains("FINANCIAL") '
        f'&& !principal.roles.contains("role-{number}") }};'
    )
