"""An agent as it is declared: a model in a loop over tools. All of it is part of the contract digest, defaults too: a
member that is added later is None unless it is said, so that what was admitted keeps its digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from placet_server.model.ask import ARGUMENT_NAME, ARGUMENTS_MAX
from placet_server.model.usage import BUDGET_MAX, Budget

MAX_TOKENS_DEFAULT = 4096
REQUEST_TIMEOUT_SECONDS_DEFAULT = 120.0
TRIES_DEFAULT = 6
DELAY_SECONDS_DEFAULT = 300.0
OUTPUT_REPAIRS_DEFAULT = 2
KEEP_TURNS_DEFAULT = 8

# Of one stretch of a run, between two waits.
TIMEOUT_SECONDS_DEFAULT = 3600.0
TIMEOUT_SECONDS_MAX_DEFAULT = 86400.0

TOOLS_MAX = 64
DELEGATES_MAX = 16
SCOPES_MAX = 64
SCOPE_LENGTH_MAX = 128
DESCRIPTION_LENGTH_MAX = 4096
INSTRUCTIONS_BYTES_MAX = 64 * 1024
MODEL_LENGTH_MAX = 128
NAME_LENGTH_MAX = 128
VERSION_LENGTH_MAX = 32
ALL_BELOW = ".*"

# Where an argument is to stand.
ARGUMENT_PLACE = re.compile(r"\{\{\s*(" + ARGUMENT_NAME.pattern + r")\s*\}\}")

_MODEL = re.compile(r"[a-z0-9][a-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._:/@-]*)?")
_CREDENTIAL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})?")
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_VERSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?")
_EFFORT = re.compile(r"[a-z]{0,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is asked. `max_tokens`: of one answer."""

    max_tokens: int = MAX_TOKENS_DEFAULT
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str = ""
    parallel_tool_calls: bool | None = None
    request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRetry:
    """How often one turn is asked for, and how long may lie between two of these tries."""

    tries_max: int = TRIES_DEFAULT
    delay_seconds_max: float = DELAY_SECONDS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """`name`: a capability, or a pattern that ends in ".*". `scopes`: None: the caller's; else no others than these.

    Of several that cover a capability the most precise one counts: `choice_for`."""

    name: str
    version: str = ""
    scopes: frozenset[str] | None = None

    @property
    def is_pattern(self) -> bool:
        return self.name.endswith(ALL_BELOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateChoice:
    """Another agent that this one may ask, with a share of its budget."""

    agent: str
    version: str = ""
    description: str = ""
    budget: Budget = field(default_factory=Budget)
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`compact_at_tokens`: 0: when the model's context is nearly full. `keep_turns`: which are never summed up."""

    compact_at_tokens: int = 0
    keep_turns: int = KEEP_TURNS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """`model`: a name that the operator knows, never an address. `credential`: a handle of the operator's; empty: the
    model's own. Never that of who asks, which is for the tools that he has called.
    """

    model: str
    instructions: str = ""
    tools: tuple[ToolChoice, ...] = ()
    delegates: tuple[DelegateChoice, ...] = ()
    budget: Budget = field(default_factory=Budget)
    memory: Memory = field(default_factory=Memory)
    settings: ModelSettings = field(default_factory=ModelSettings)
    output_repairs_max: int = OUTPUT_REPAIRS_DEFAULT
    provider_retry: ProviderRetry = field(default_factory=ProviderRetry)
    credential: str = ""


class SpecProblem(NamedTuple):
    """`member`: of the spec as it is on the wire."""

    member: str
    code: str
    message: str


def by_name(tools: Iterable[ToolChoice]) -> dict[str, ToolChoice]:
    """As `choice_for` takes them."""
    return {each.name: each for each in tools}


def choice_for(tools: Mapping[str, ToolChoice], name: str) -> ToolChoice | None:
    """The one that counts for a capability, or for all that a pattern covers; None: it may not be called."""
    found = tools.get(name)
    stem = name.removesuffix(ALL_BELOW)
    while found is None and "." in stem:
        stem = stem.rpartition(".")[0]
        found = tools.get(stem + ALL_BELOW)
    return found


def arguments_in(instructions: str) -> frozenset[str]:
    """The names that `{{name}}` stands for in them."""
    return frozenset(ARGUMENT_PLACE.findall(instructions))


def bounds(budget: Budget) -> Iterator[tuple[str, int]]:
    """Each bound by its member; 0: none."""
    for each in fields(budget):
        yield each.name, getattr(budget, each.name)


def budget_member(name: str) -> str:
    """Of the message."""
    return "active_time" if name == "active_ms" else name


def problems(spec: AgentSpec) -> Iterator[SpecProblem]:
    """Every problem that needs no look at anything else."""
    if not _MODEL.fullmatch(spec.model) or len(spec.model) > MODEL_LENGTH_MAX:
        text = (
            "A model is a name that the operator knows, such as fast or openai:gpt-5, at most 128 characters; "
            "where it is, only the operator says."
        )
        yield SpecProblem("model", "agent_model", text)
    yield from _instruction_problems(spec.instructions)
    yield from _tool_problems(spec.tools)
    yield from _delegate_problems(spec.delegates)
    yield from _budget_problems(spec.budget, "budget")
    yield from _setting_problems(spec)
    if not _CREDENTIAL.fullmatch(spec.credential):
        text = "A credential is a handle of letters, digits, '.', '_' and '-', at most 128 characters."
        yield SpecProblem("credential", "agent_credential", text)


def _instruction_problems(instructions: str) -> Iterator[SpecProblem]:
    if len(instructions.encode(errors="surrogatepass")) > INSTRUCTIONS_BYTES_MAX:
        yield SpecProblem("instructions", "instructions_too_long", "At most 64 KiB of instructions.")
    if len(arguments_in(instructions)) > ARGUMENTS_MAX:
        text = f"Instructions name at most {ARGUMENTS_MAX} arguments, which is what a call may give."
        yield SpecProblem("instructions", "instructions_arguments", text)


def _tool_problems(tools: tuple[ToolChoice, ...]) -> Iterator[SpecProblem]:
    if len(tools) > TOOLS_MAX:
        yield SpecProblem("tools", "tools_too_many", f"At most {TOOLS_MAX} tools; name a pattern instead.")
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        stem = tool.name.removesuffix(ALL_BELOW)
        if not _NAME.fullmatch(stem) or len(tool.name) > NAME_LENGTH_MAX:
            text = "A tool is a capability's name, or a pattern such as orders.*, at most 128 characters."
            yield SpecProblem(f"{path}.name", "tool_name", text)
        if tool.name in seen:
            yield SpecProblem(f"{path}.name", "tool_duplicate", f"{tool.name} is named twice.")
        seen.add(tool.name)
        if tool.is_pattern and tool.version:
            text = "A pattern has no version: what it covers is pinned when a run begins."
            yield SpecProblem(f"{path}.version", "tool_version_of_pattern", text)
        yield from _choice_problems(tool, path)


def _delegate_problems(delegates: tuple[DelegateChoice, ...]) -> Iterator[SpecProblem]:
    if len(delegates) > DELEGATES_MAX:
        yield SpecProblem("delegates", "delegates_too_many", f"At most {DELEGATES_MAX} delegates.")
    seen: set[str] = set()
    for index, delegate in enumerate(delegates):
        path = f"delegates[{index}]"
        if not _NAME.fullmatch(delegate.agent) or len(delegate.agent) > NAME_LENGTH_MAX:
            text = "A delegate is an agent's name, at most 128 characters."
            yield SpecProblem(f"{path}.agent", "delegate_name", text)
        if delegate.agent in seen:
            yield SpecProblem(f"{path}.agent", "delegate_duplicate", f"{delegate.agent} is named twice.")
        seen.add(delegate.agent)
        if len(delegate.description) > DESCRIPTION_LENGTH_MAX:
            text = f"At most {DESCRIPTION_LENGTH_MAX} characters."
            yield SpecProblem(f"{path}.description", "description_too_long", text)
        yield from _choice_problems(delegate, path)
        yield from _budget_problems(delegate.budget, f"{path}.budget")


def _choice_problems(choice: ToolChoice | DelegateChoice, path: str) -> Iterator[SpecProblem]:
    if not _VERSION.fullmatch(choice.version) or len(choice.version) > VERSION_LENGTH_MAX:
        text = "A version is letters, digits, '.', '_' and '-', at most 32 characters."
        yield SpecProblem(f"{path}.version", "choice_version", text)
    scopes = choice.scopes or frozenset()
    if len(scopes) > SCOPES_MAX or any(not 0 < len(scope) <= SCOPE_LENGTH_MAX for scope in scopes):
        text = f"At most {SCOPES_MAX} scopes, each of 1 to {SCOPE_LENGTH_MAX} characters."
        yield SpecProblem(f"{path}.scopes", "choice_scopes", text)


def _budget_problems(budget: Budget, path: str) -> Iterator[SpecProblem]:
    for (name, bound), (_, largest) in zip(bounds(budget), bounds(BUDGET_MAX), strict=True):
        smallest = 1000 if name == "active_ms" and bound else 0
        if not smallest <= bound <= largest:
            told = "between 1 s and 30 days" if name == "active_ms" else f"at most {largest}"
            text = f"0 for no bound of its own, or {told}."
            yield SpecProblem(f"{path}.{budget_member(name)}", "budget_range", text)


def _setting_problems(spec: AgentSpec) -> Iterator[SpecProblem]:
    settings, memory, retry = spec.settings, spec.memory, spec.provider_retry
    for member, value, low, high, text in (
        ("settings.max_tokens", settings.max_tokens, 1, 1_000_000, "Between 1 and 1000000."),
        ("settings.temperature", settings.temperature, 0, 2, "Between 0 and 2."),
        ("settings.top_p", settings.top_p, 0, 1, "Between 0 and 1."),
        (
            "settings.request_timeout",
            settings.request_timeout_seconds,
            1,
            3600,
            "Between 1 s and 1 h.",
        ),
        ("memory.compact_at_tokens", memory.compact_at_tokens, 0, 100_000_000, "At most 100000000."),
        ("memory.keep_turns", memory.keep_turns, 1, 1000, "Between 1 and 1000."),
        ("provider_retry.tries_max", retry.tries_max, 1, 100, "Between 1 and 100."),
        ("provider_retry.delay_max", retry.delay_seconds_max, 1, 86400, "Between 1 s and 24 h."),
        ("output_repairs_max", spec.output_repairs_max, 0, 5, "At most 5."),
    ):
        # So that it holds for what is not a number, too.
        if value is not None and not low <= value <= high:
            yield SpecProblem(member, "agent_setting_range", text)
    if not _EFFORT.fullmatch(settings.reasoning_effort):
        text = "One word of small letters, as the provider has it, such as low."
        yield SpecProblem("settings.reasoning_effort", "agent_setting_range", text)
