"""An app: tools and agents under one name, and how to find it."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from placet.agent import Agent, Budget, DelegateChoice, Memory, ModelSettings, ProviderRetry, ToolChoice
from placet.agent_requests import spec_message
from placet.contract import EffectWord, Options, Terms, contract_of
from placet.failure import DeclarationError
from placet.handler import Handler, read_handler, read_lookup
from placet.lookup import Lookup
from placet.schema import output_text, schema_text
from placet.v1 import capability_pb2 as pb

if TYPE_CHECKING:
    from placet.connector.option import ServeOptions

ENTRY_POINT_GROUP = "placet.apps"
DESCRIPTION_LENGTH_MAX = 4096

_APP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_TOOL_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One capability and its handler.

    `call(context, text)` takes JSON text and returns JSON, or an awaitable of it if `is_async`. `lookup` finds out
    what became of the effect of an attempt that was lost.
    """

    name: str
    version: str
    is_async: bool
    wants_context: bool
    streaming: bool
    cancellable: bool
    effect_marked: bool
    call: Callable[[Any, Any], Any]
    capability: pb.Capability
    lookup: Lookup | None = None


class App:
    """Tools and agents, admitted together. `name` is the manifest's: lower-case letters, digits, `_` and `-`."""

    def __init__(self, name: str, version: str = "1") -> None:
        if not _APP_NAME.fullmatch(name):
            raise DeclarationError(
                f"app name {name!r}: use lower-case letters, digits, '_' and '-', a letter first"
            )
        self.name = name
        self.version = version
        self.reference = ""
        self._tools: dict[tuple[str, str], Tool] = {}
        self._agents: dict[tuple[str, str], Agent] = {}
        self._declared: list[pb.Capability] = []
        # Whose handlers get the input as one value, as their schema was given.
        self._takes_whole: set[tuple[str, str]] = set()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    @property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(self._agents.values())

    def manifest(self) -> pb.Manifest:
        """What is admitted, in the order of declaration."""
        return pb.Manifest(
            name=self.name,
            version=self.version,
            capabilities=self._declared,
            local=pb.LocalHandlers(app=self.reference),
        )

    def tool(
        self,
        name: str,
        effect: EffectWord,
        *,
        version: str = "1",
        title: str = "",
        description: str | None = None,
        documentation_url: str = "",
        key_fields: Sequence[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Callable[[FunctionT], FunctionT]:
        """Make a function a tool; the function stays as it is.

        `effect` says whether repeating is safe: "read", "composed" (does nothing but by the tools that it calls),
        "idempotent" (the provider deduplicates on the effect key, for `effect_key_ttl`, 24 h unless said),
        "reconcilable" or "unsafe". The description is the docstring, `cancellable`
        is true for async functions, spans are seconds or timedeltas; the rest is `placet.v1.Contract`. The input is one
        parameter that is a pydantic model, dataclass or TypedDict, or else one member per parameter; a parameter
        annotated `Context` (async) or `SyncContext` (plain) gets the context. Raises DeclarationError.
        """
        what = f"tool {name!r}"
        names = sys._getframe(1).f_locals

        def declare(function: FunctionT) -> FunctionT:
            self._check_name("tool", name, version)
            handler = read_handler(
                function, names=names, input_schema=input_schema, output_schema=output_schema
            )
            contract = contract_of(Terms.of(effect, options, is_async=handler.is_async), what)
            _check_context(handler, contract, what)
            if effect == "composed" and not handler.is_async:
                raise DeclarationError(f"{what} is 'composed', so its function is async: say `async def`")
            text = inspect.getdoc(function) or "" if description is None else description
            presentation = pb.Presentation(
                title=title,
                description=text[:DESCRIPTION_LENGTH_MAX],
                key_fields=key_fields,
                documentation_url=documentation_url,
            )
            self._add(name, version, handler, contract, presentation)
            if input_schema is not None:
                self._takes_whole.add((name, version))
            return function

        return declare

    def agent(
        self,
        name: str,
        *,
        model: str,
        instructions: str = "",
        tools: Sequence[ToolChoice | str] = (),
        delegates: Sequence[DelegateChoice | Agent | str] = (),
        output: Any = None,
        budget: Budget | None = None,
        memory: Memory | None = None,
        settings: ModelSettings | None = None,
        provider_retry: ProviderRetry | None = None,
        output_repairs_max: int | None = None,
        credential: str = "",
        version: str = "1",
        title: str = "",
        description: str = "",
        documentation_url: str = "",
        **options: Unpack[Options],
    ) -> Agent:
        """Declare an agent: a model in a loop over tools, which the server runs.

        `model` is a name that the server's operator knows. In `instructions`, `{{name}}` stands for an argument that
        whoever asks gives. `tools` are names of capabilities, or patterns such as "orders.*", whatever app they are
        of; `delegates` are other agents. `output`: a type, or a JSON Schema, of what a run has to end with; None: its
        last message. Options are those of a tool. Raises DeclarationError.
        """
        what = f"agent {name!r}"
        self._check_name("agent", name, version)
        capability = pb.Capability(
            name=name,
            version=version,
            kind=pb.CAPABILITY_KIND_AGENT,
            output_schema_json=output_text(output, f"the output of {name!r}"),
            contract=contract_of(Terms.of("composed", options, is_async=True), what),
            presentation=pb.Presentation(
                title=title,
                description=description[:DESCRIPTION_LENGTH_MAX],
                documentation_url=documentation_url,
            ),
            agent=spec_message(
                what,
                model=model,
                instructions=instructions,
                tools=tools,
                delegates=delegates,
                budget=budget,
                memory=memory,
                settings=settings,
                provider_retry=provider_retry,
                output_repairs_max=output_repairs_max,
                credential=credential,
            ),
        )
        agent = Agent(name=name, version=version, capability=capability)
        self._agents[name, version] = agent
        self._declared.append(capability)
        return agent

    def lookup(self, name: str, *, version: str = "1") -> Callable[[FunctionT], FunctionT]:
        """Make a function the lookup of a tool that is declared above it: asked what became of the effect, when an
        attempt was lost. The function stays as it is.

        A parameter annotated `LookupContext` gets what is known of the attempt, the others are members of the tool's
        input, not necessarily all. It returns `Committed`, `NotCommitted` or `NotKnown`, and changes nothing: it is
        asked as often as it takes. A "reconcilable" tool needs one. Raises DeclarationError.
        """
        names = sys._getframe(1).f_locals

        def declare(function: FunctionT) -> FunctionT:
            tool = self._to_look_up(name, version)
            takes_whole = (name, version) in self._takes_whole
            lookup = read_lookup(function, names=names, takes_whole=takes_whole)
            self._tools[name, version] = replace(tool, lookup=lookup)
            return function

        return declare

    def serve(self, host: str = "127.0.0.1", port: int = 7435, **options: Unpack[ServeOptions]) -> None:
        """Serve the tools to Placet from this process, until SIGTERM: Placet dials it. Port 0 is any free one.

        Options are those of `placet.connector.option.ServeOptions`. Checking tokens needs `placet[connector]`. Raises
        `placet.connector.server.ServeError`.
        """
        from placet.connector.option import settings_of
        from placet.connector.server import run

        run(self, settings_of(self, host, port, options))

    def _to_look_up(self, name: str, version: str) -> Tool:
        what = f"tool {name!r} version {version!r}"
        tool = self._tools.get((name, version))
        if tool is None:
            raise DeclarationError(f"{what} is not declared; its lookup comes after it")
        if tool.lookup is not None:
            raise DeclarationError(f"{what} has two lookups; remove one")
        if tool.capability.contract.effect == pb.EFFECT_CLASS_READ:
            raise DeclarationError(f"{what} is 'read', which has no effect to look up; remove the lookup")
        if tool.capability.contract.effect == pb.EFFECT_CLASS_COMPOSED:
            raise DeclarationError(f"{what} is 'composed', which does nothing itself; remove the lookup")
        return tool

    def _check_name(self, kind: str, name: str, version: str) -> None:
        if len(name) > 128 or not _TOOL_NAME.fullmatch(name):
            raise DeclarationError(
                f"{kind} name {name!r}: use dotted lower-case words, for example 'orders.refund'"
            )
        if not _TOOL_VERSION.fullmatch(version):
            raise DeclarationError(
                f"{kind} {name!r}: version {version!r} has letters, digits, '.', '_', '-', at most 32"
            )
        if (name, version) in self._tools or (name, version) in self._agents:
            raise DeclarationError(
                f"{kind} {name!r} version {version!r} is declared twice; give the second another name or version="
            )

    def _add(
        self, name: str, version: str, handler: Handler, contract: pb.Contract, presentation: pb.Presentation
    ) -> None:
        output = handler.output_schema
        capability = pb.Capability(
            name=name,
            version=version,
            kind=pb.CAPABILITY_KIND_TOOL,
            input_schema_json=schema_text(handler.input_schema, f"the input schema of {name!r}"),
            output_schema_json=""
            if output is None
            else schema_text(output, f"the output schema of {name!r}"),
            contract=contract,
            presentation=presentation,
        )
        self._declared.append(capability)
        self._tools[name, version] = Tool(
            name=name,
            version=version,
            is_async=handler.is_async,
            wants_context=handler.wants_context,
            streaming=contract.streaming,
            cancellable=contract.cancellable,
            effect_marked=contract.effect_marked,
            call=handler.call,
            capability=capability,
        )


def load_app(reference: str) -> App:
    """Find an app by "module:object" (the working folder is importable) or by its entry point in `placet.apps`.

    Raises DeclarationError with what to change; errors of the module itself pass through.
    """
    if ":" in reference:
        module_name, _, attribute = reference.partition(":")
        found = _load_object(module_name, attribute, reference)
    else:
        matches = entry_points(group=ENTRY_POINT_GROUP, name=reference)
        if not matches:
            raise DeclarationError(
                f"no app {reference!r} is installed (entry points {ENTRY_POINT_GROUP!r}); say it as 'module:object'"
            )
        found = next(iter(matches)).load()
    if not isinstance(found, App):
        raise DeclarationError(
            f"{reference!r} is a {type(found).__name__}; name the placet.App of that module"
        )
    found.reference = reference
    return found


def _load_object(module_name: str, attribute: str, reference: str) -> Any:
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the app itself misses is the app's own error.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise DeclarationError(
            f"{reference!r}: there is no module {module_name!r}; run in its folder, or install it"
        ) from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise DeclarationError(f"{reference!r}: {module_name!r} has no {attribute!r}") from None


def _check_context(handler: Handler, contract: pb.Contract, what: str) -> None:
    if handler.wants_context:
        return
    right = "Context" if handler.is_async else "SyncContext"
    for option, given, use in (
        ("streaming", contract.streaming, "chunk"),
        ("effect_marked", contract.effect_marked, "effect"),
    ):
        if given:
            raise DeclarationError(
                f"{what}: {option}=True needs a parameter `context: placet.{right}` to call {use}() on"
            )
