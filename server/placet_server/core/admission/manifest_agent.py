"""What is wrong with the agents of a manifest: each by itself, and with what it may call and ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from placet_server.core.admission.builtin import RESERVED_PREFIX, is_reserved
from placet_server.model import question
from placet_server.model.agent import ALL_BELOW, AgentSpec, DelegateChoice, bounds, budget_member, problems
from placet_server.model.ask import INPUT_SCHEMA
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.contract import EffectClass
from placet_server.model.manifest import HandlerClaims, Manifest, Problem
from placet_server.model.usage import Budget

# What the server can do for every agent: its program stops when it is told to, and may be COMPOSED.
AGENT_CLAIMS = HandlerClaims(cancellable=True, composes=True)

CYCLES_SHOWN_MAX = 16


# What `Programs.problem` says of the model that is named; the rest of it is no fault of the manifest's.
_MODEL_TROUBLES = {
    "model_unknown": "No model here has the name {model!r} yet, so no run of it can begin.",
    "price_unknown": "The model {model!r} has no price here, and the budget is in money, so no run can begin.",
}


def _no_trouble(capability: Capability) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What agents of a manifest can meet beside it: what is in service and named by any of them.

    `kinds`: by name and version. `current`: the version that a name alone means. `stems`: of patterns that cover
    something. `asks`: whom agents ask that agents of the manifest ask, and so on. `may_be_elsewhere`: this is not all,
    so that what is not found may be there for whoever runs them.
    `budget_max`: no run spends more. `trouble`: why no run of an agent could begin here; empty: one could."""

    kinds: Mapping[tuple[str, str], CapabilityKind] = field(default_factory=dict)
    current: Mapping[str, str] = field(default_factory=dict)
    stems: frozenset[str] = frozenset()
    asks: Mapping[tuple[str, str], Sequence[DelegateChoice]] = field(default_factory=dict)
    may_be_elsewhere: bool = False
    budget_max: Budget = field(default_factory=Budget)
    trouble: Callable[[Capability], str] = _no_trouble


NOTHING_AROUND = Around()


def named_by(manifest: Manifest) -> tuple[list[str], list[str]]:
    """Names, and stems of patterns ("orders."), that its agents name; sorted."""
    specs = [each.agent for each in manifest.capabilities if each.agent is not None]
    tools = [tool for spec in specs for tool in spec.tools]
    names = {tool.name for tool in tools if not tool.is_pattern}
    names |= {delegate.agent for spec in specs for delegate in spec.delegates}
    return sorted(names), sorted({_stem(tool.name) for tool in tools if tool.is_pattern})


def agent_problems(capability: Capability, path: str, there: There) -> Iterator[Problem]:
    """Of one capability: that it is none, or everything that is wrong with it as an agent."""
    spec = capability.agent
    if capability.kind is not CapabilityKind.AGENT:
        if spec is not None:
            yield _error(
                f"{path}.agent", "agent_unexpected", "Only an AGENT has it; say so, or leave it out."
            )
        return
    if spec is None:
        yield _error(f"{path}.agent", "agent_missing", "An AGENT needs a model, at least; say it in agent.")
        return
    if capability.contract.effect is not EffectClass.COMPOSED:
        text = "An AGENT is COMPOSED: what it does are the actions that it calls."
        yield _error(f"{path}.contract.effect", "agent_not_composed", text)
    yield from _schema_problems(capability, path)
    for found in problems(spec):
        yield _error(f"{path}.agent.{found.member}", found.code, found.message)
    yield from _tool_problems(spec, f"{path}.agent", there)
    yield from _delegate_problems(spec, f"{path}.agent", there)
    yield from _bound_problems(spec.budget, f"{path}.agent.budget", there.budget_max)
    if (trouble := there.trouble(capability)) in _MODEL_TROUBLES:
        text = _MODEL_TROUBLES[trouble].format(model=spec.model)
        yield Problem(path=f"{path}.agent.model", code=trouble, message=text[:1024], warning=True)


def _schema_problems(capability: Capability, path: str) -> Iterator[Problem]:
    # A schema that is no JSON has a problem of its own.
    if capability.contract_digest_or_none is None:
        return
    if capability.input_schema_value != INPUT_SCHEMA:
        text = "What an agent takes is the server's own schema; leave it out."
        yield _error(f"{path}.input_schema_json", "agent_input_schema", text)
    output = capability.output_schema_value
    # A model gives its answer as the arguments of a call, which are an object.
    if capability.output_schema and not (isinstance(output, dict) and output.get("type") == "object"):
        text = (
            'A run ends with an object: say "type": "object", or leave the schema out for its last message.'
        )
        yield _error(f"{path}.output_schema_json", "agent_output_schema", text)


def cycle_problems(manifest: Manifest, there: There) -> Iterator[Problem]:
    """Agents that would ask each other without end, of this manifest alone or with others; each round once, at most
    16.
    """
    asks = dict(there.asks) | {
        (each.name, each.version): each.agent.delegates
        for each in manifest.capabilities
        if each.agent is not None
    }
    graph = {
        asking: [
            (found, index)
            for index, delegate in enumerate(delegates)
            if (found := (delegate.agent, there.version(delegate.agent, delegate.version))) in asks
        ]
        for asking, delegates in asks.items()
    }
    for _ in range(CYCLES_SHOWN_MAX):
        around = _round(graph)
        if around is None:
            return
        begin = next((place for place, asking in enumerate(around) if asking in there.own), 0)
        around = [*around[begin:], *around[1 : begin + 1]]
        asking, asked = around[:2]
        index = next(index for found, index in graph[asking] if found == asked)
        graph[asking] = [each for each in graph[asking] if each[0] != asked]
        if asking not in there.own:
            # It was there before, and is nothing of this manifest's.
            continue
        text = f"They would ask each other without end: {' → '.join(name for name, _ in around)}."
        path = f"capabilities[{there.own[asking]}].agent.delegates[{index}]"
        yield _error(path, "delegates_cycle", text)


def _round(
    graph: Mapping[tuple[str, str], list[tuple[tuple[str, str], int]]],
) -> list[tuple[str, str]] | None:
    """From one that asks to itself again; None if there is none."""
    try:
        TopologicalSorter({node: [found for found, _ in edges] for node, edges in graph.items()}).prepare()
    except CycleError as error:
        found: list[tuple[str, str]] = error.args[1]
        return found[::-1]
    return None


class There:
    """What a name means to an agent: what the manifest has, and what is around it."""

    def __init__(self, manifest: Manifest, around: Around) -> None:
        capabilities = manifest.capabilities
        self.own = {(each.name, each.version): index for index, each in enumerate(capabilities)}
        self._kinds = {(each.name, each.version): each.kind for each in capabilities}
        self._current = {each.name: each.version for each in capabilities}
        self._around = around
        self._stems = set(around.stems)
        for each in capabilities:
            if each.kind is not CapabilityKind.AGENT:
                words = each.name.split(".")
                self._stems |= {".".join(words[:count]) + "." for count in range(1, len(words))}

    @property
    def asks(self) -> Mapping[tuple[str, str], Sequence[DelegateChoice]]:
        return self._around.asks

    @property
    def budget_max(self) -> Budget:
        return self._around.budget_max

    def trouble(self, capability: Capability) -> str:
        return self._around.trouble(capability)

    def version(self, name: str, version: str) -> str:
        """Of a choice; empty if there is none."""
        return version or self._current.get(name) or self._around.current.get(name, "")

    def kind(self, name: str, version: str) -> CapabilityKind | None:
        if name == question.CAPABILITY:
            # Every server has it.
            return CapabilityKind.HUMAN
        identity = (name, self.version(name, version))
        return self._kinds.get(identity) or self._around.kinds.get(identity)

    def covers_something(self, stem: str) -> bool:
        """Of what is no agent."""
        return stem in self._stems

    def unknown(self, path: str, code: str, name: str, version: str) -> Problem:
        text = f"There is no {name}{f' in version {version}' if version else ''}; admit it before, or in this manifest."
        return Problem(path=path, code=code, message=text[:1024], warning=self._around.may_be_elsewhere)


def _tool_problems(spec: AgentSpec, path: str, there: There) -> Iterator[Problem]:
    for index, tool in enumerate(spec.tools):
        place = f"{path}.tools[{index}].name"
        if is_reserved(_stem(tool.name) if tool.is_pattern else tool.name):
            text = f"What begins with {RESERVED_PREFIX} governs the server; no agent calls it."
            yield _error(place, "tool_reserved", text)
        elif tool.is_pattern:
            if not there.covers_something(_stem(tool.name)):
                text = f"{tool.name} covers nothing yet."
                yield Problem(path=place, code="tool_pattern_empty", message=text[:1024], warning=True)
        elif (kind := there.kind(tool.name, tool.version)) is None:
            yield there.unknown(place, "tool_unknown", tool.name, tool.version)
        elif kind is CapabilityKind.AGENT:
            yield _error(place, "tool_is_agent", f"{tool.name} is an agent; name it among the delegates.")


def _delegate_problems(spec: AgentSpec, path: str, there: There) -> Iterator[Problem]:
    for index, delegate in enumerate(spec.delegates):
        place = f"{path}.delegates[{index}].agent"
        if is_reserved(delegate.agent):
            text = f"What begins with {RESERVED_PREFIX} is the server's own; no agent asks it."
            yield _error(place, "delegate_reserved", text)
            continue
        kind = there.kind(delegate.agent, delegate.version)
        if kind is None:
            yield there.unknown(place, "delegate_unknown", delegate.agent, delegate.version)
        elif kind is not CapabilityKind.AGENT:
            yield _error(
                place, "delegate_not_agent", f"{delegate.agent} is no agent; name it among the tools."
            )


def _bound_problems(budget: Budget, path: str, budget_max: Budget) -> Iterator[Problem]:
    for (name, bound), (_, largest) in zip(bounds(budget), bounds(budget_max), strict=True):
        if largest and bound > largest:
            told = f"{largest / 1000:g} s" if name == "active_ms" else str(largest)
            text = f"This server lets no run have more than {told}."
            yield _error(f"{path}.{budget_member(name)}", "budget_above_server", text)


def _stem(pattern: str) -> str:
    """What the names begin with that a pattern covers."""
    return pattern.removesuffix(ALL_BELOW) + "."


def _error(path: str, code: str, message: str) -> Problem:
    return Problem(path=path, code=code, message=message[:1024])
