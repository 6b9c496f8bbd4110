"""A policy set such as a tenant of some size has, about the tool under load: all of it applies to every call.

One policy in ten reads the input, so it is asked at each call; the others look at roles, at risk and at hazards."""

from __future__ import annotations

from benchmarks.noop_app import CAPABILITY
from placet.client import Client
from placet.policy import PolicySet


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
        return (
            f'{name} forbid (principal, action == Action::"{CAPABILITY}", resource) '
            f'when {{ context.input.quantity > {1000 + number} || context.input.currency == "X{number}" }};'
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
