"""What a change of an agent takes back: more that it may call, in wider scopes, or more that it may spend."""

from __future__ import annotations

from collections.abc import Iterator

from placet_server.model.agent import (
    AgentSpec,
    DelegateChoice,
    SpecProblem,
    ToolChoice,
    bounds,
    budget_member,
    by_name,
    choice_for,
)
from placet_server.model.caller import EVERY_SCOPE
from placet_server.model.usage import Budget


def widened(old: AgentSpec, new: AgentSpec) -> Iterator[SpecProblem]:
    """Nothing if whatever the new one may do, the old one might have done."""
    if new.model != old.model:
        text = f"It asks {new.model} instead of {old.model}."
        yield SpecProblem("model", "model_changed", text)
    if new.credential != old.credential:
        text = "It asks its model with another credential."
        yield SpecProblem("credential", "model_credential_changed", text)
    yield from _of_tools(old, new)
    for index, delegate in enumerate(new.delegates):
        yield from _of_delegate(old, delegate, f"delegates[{index}]")
    yield from _of_budget(old.budget, new.budget, "budget")
    if new.provider_retry.tries_max > old.provider_retry.tries_max:
        text = f"A turn is asked for {new.provider_retry.tries_max} times instead of {old.provider_retry.tries_max}."
        yield SpecProblem("provider_retry.tries_max", "provider_tries_raised", text)


def _of_tools(old: AgentSpec, new: AgentSpec) -> Iterator[SpecProblem]:
    """By each name that either says anything of: what is not named any more may be covered by a pattern still."""
    told: set[tuple[str, str]] = set()
    chosen, held = by_name(new.tools), by_name(old.tools)
    places = {each.name: index for index, each in enumerate(new.tools)}
    for name in {**chosen, **held}:
        after = choice_for(chosen, name)
        if after is None:
            continue
        path = f"tools[{places[after.name]}]"
        for found in _of_choice(name, choice_for(held, name), after, path):
            if (found.member, found.code) not in told:
                told.add((found.member, found.code))
                yield found


def _of_choice(name: str, before: ToolChoice | None, after: ToolChoice, path: str) -> Iterator[SpecProblem]:
    if before is None:
        yield SpecProblem(f"{path}.name", "tools_added", f"It may now call {name}.")
        return
    if before.version and after.version != before.version:
        text = f"{name} was version {before.version} and is {after.version or 'the current one'}."
        yield SpecProblem(f"{path}.version", "tool_version_changed", text)
    if not _is_within(after.scopes, before.scopes):
        yield SpecProblem(f"{path}.scopes", "tool_scopes_widened", f"{name} is called with more scopes.")


def _of_delegate(old: AgentSpec, delegate: DelegateChoice, path: str) -> Iterator[SpecProblem]:
    before = next((each for each in old.delegates if each.agent == delegate.agent), None)
    if before is None:
        yield SpecProblem(f"{path}.agent", "delegates_added", f"It may now ask {delegate.agent}.")
        return
    if before.version and delegate.version != before.version:
        text = (
            f"{delegate.agent} was version {before.version} and is {delegate.version or 'the current one'}."
        )
        yield SpecProblem(f"{path}.version", "delegate_version_changed", text)
    if not _is_within(delegate.scopes, before.scopes):
        text = f"{delegate.agent} is asked with more scopes."
        yield SpecProblem(f"{path}.scopes", "delegate_scopes_widened", text)
    yield from _of_budget(before.budget, delegate.budget, f"{path}.budget")


def _of_budget(old: Budget, new: Budget, path: str) -> Iterator[SpecProblem]:
    for (name, before), (_, after) in zip(bounds(old), bounds(new), strict=True):
        # 0 is no bound.
        if before and (after > before or not after):
            member = budget_member(name)
            text = f"The budget of {member} is {_told(name, after)} instead of {_told(name, before)}."
            yield SpecProblem(f"{path}.{member}", "budget_raised", text)


def _told(name: str, bound: int) -> str:
    if not bound:
        return "without a bound"
    return f"{bound / 1000:g} s" if name == "active_ms" else str(bound)


def _is_within(scopes: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    """Whether these scopes give nothing that the others do not. None: all that the caller has."""
    if other is None or EVERY_SCOPE in other:
        return True
    return scopes is not None and scopes <= other
