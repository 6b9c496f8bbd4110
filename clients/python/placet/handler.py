"""Reads a Python function as a handler: JSON text in, JSON out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import is_typeddict

from placet.context import Context, SyncContext
from placet.failure import DeclarationError, Failure
from placet.lookup import Committed, Lookup, LookupContext
from placet.schema import NO_DEFAULT, adapter_of, model_of_parameters, schema_of

VIOLATIONS_SHOWN_MAX = 16

# From a context and the input's JSON text to the arguments of the function.
Bind = Callable[[Any, str], dict[str, Any]]
Dump = Callable[[Any], Any]

# What equals one of these reads and writes as it does, so what does the reading is made once.
_GENERIC = (dict[str, Any], dict[str, str], list[dict[str, Any]], list[str], list[int])
_PLAIN = frozenset((str, int, float, bool, dict, list, type(None), Any, *_GENERIC))
_PLAIN_DEFAULTS = (str, int, bool, type(None))

_KINDS: dict[type, str] = {Context: "async", SyncContext: "a plain function", LookupContext: "a lookup"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """`call` takes the context (or None) and JSON text; it returns JSON, or an awaitable of it if `is_async`.

    An input that the function's own types refuse becomes Failure("invalid_input"), category invalid, effect not done.
    """

    is_async: bool
    wants_context: bool
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    call: Callable[[Any, str], Any]


def read_handler(
    function: Callable[..., Any],
    *,
    names: Mapping[str, Any],
    input_schema: Mapping[str, Any] | None,
    output_schema: Mapping[str, Any] | None,
) -> Handler:
    """`names` are what annotations may refer to beside the function's module. Given schemas win over derived ones.

    Raises DeclarationError.
    """
    what = _what(function)
    is_async = _is_async(function, what)
    hints = _hints(function, names, what)
    context_name, parameters = _parameters(function, hints, Context if is_async else SyncContext, what)
    bind, derived_input = _input(parameters, context_name, input_schema is not None, what)
    dump, derived_output = _output(hints, output_schema is not None, what)
    return Handler(
        is_async=is_async,
        wants_context=context_name is not None,
        input_schema=derived_input if input_schema is None else input_schema,
        output_schema=derived_output if output_schema is None else output_schema,
        call=_async_call(function, bind, dump) if is_async else _plain_call(function, bind, dump),
    )


def read_lookup(function: Callable[..., Any], *, names: Mapping[str, Any], takes_whole: bool) -> Lookup:
    """As `read_handler`, but it may leave members of the input out.

    `takes_whole`: its one parameter is the whole input. Raises DeclarationError.
    """
    what = _what(function)
    is_async = _is_async(function, what)
    hints = _hints(function, names, what)
    context_name, parameters = _parameters(function, hints, LookupContext, what)
    bind, _ = _input(parameters, context_name, takes_whole, what, takes_all=False)
    call = _async_call if is_async else _plain_call
    return Lookup(is_async=is_async, call=call(function, bind, _as_found))


def _as_found(answer: Any) -> Any:
    return Committed(_dump_anything(answer.output)) if isinstance(answer, Committed) else answer


def _what(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', function)!s}()"


def _async_call(function: Callable[..., Any], bind: Bind, dump: Dump) -> Callable[[Any, str], Any]:
    async def call(context: Any, text: str) -> Any:
        return dump(await function(**bind(context, text)))

    return call


def _plain_call(function: Callable[..., Any], bind: Bind, dump: Dump) -> Callable[[Any, str], Any]:
    def call(context: Any, text: str) -> Any:
        return dump(function(**bind(context, text)))

    return call


def _is_async(function: Callable[..., Any], what: str) -> bool:
    if not callable(function):
        raise DeclarationError(f"{what} cannot be called; decorate a function")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(
            f"{what} yields; take a Context, send parts with `await context.chunk(…)` under streaming=True, "
            "and return the whole"
        )
    return inspect.iscoroutinefunction(function)


def _hints(function: Callable[..., Any], names: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(names), include_extras=True)
    except NameError as error:
        raise DeclarationError(
            f"{what} is annotated with {error.name!r}, which cannot be found; import it outside `if TYPE_CHECKING`"
        ) from None


def _parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], wanted: type, what: str
) -> tuple[str | None, list[tuple[str, Any, Any]]]:
    """The context parameter's name, then (name, annotation, default) of the others."""
    context_name = None
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise DeclarationError(f"{what} takes {parameter}; name and annotate each parameter")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise DeclarationError(f"{what} takes {name!r} by position only; remove the `/`")
        if name not in hints:
            raise DeclarationError(
                f"{what}: annotate {name!r}, for example `{name}: str` or `{name}: placet.Context`"
            )
        annotation = hints[name]
        if annotation in (Context, SyncContext, LookupContext):
            if context_name is not None:
                raise DeclarationError(f"{what} takes two contexts; remove {name!r}")
            if annotation is not wanted:
                raise DeclarationError(
                    f"{what} is {_KINDS[wanted]}; annotate {name!r} as placet.{wanted.__name__}"
                )
            context_name = name
            continue
        default = NO_DEFAULT if parameter.default is parameter.empty else parameter.default
        parameters.append((name, annotation, default))
    return context_name, parameters


def _input(
    parameters: list[tuple[str, Any, Any]],
    context_name: str | None,
    schema_given: bool,
    what: str,
    *,
    takes_all: bool = True,
) -> tuple[Bind, dict[str, Any]]:
    """One parameter that is an object by itself takes the whole input; otherwise every parameter is a member of it."""
    is_whole = len(parameters) == 1 and (schema_given or _is_object(parameters[0][1]))
    shape = tuple(parameters), is_whole, schema_given, takes_all
    if all(_is_plain(annotation, default) for _, annotation, default in parameters):
        adapter, schema = _read_plain(*shape, tuple(type(default) for _, _, default in parameters))
    else:
        adapter, schema = _read(*shape, what)
    names = [name for name, _, _ in parameters]
    bind = (
        _bind_whole(adapter, names[0], context_name)
        if is_whole
        else _bind_members(adapter, names, context_name)
    )
    return bind, schema


def _read(
    parameters: tuple[tuple[str, Any, Any], ...],
    is_whole: bool,
    schema_given: bool,
    takes_all: bool,
    what: str,
) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What reads the input, and its schema."""
    adapters = [adapter_of(annotation, f"parameter {name!r} of {what}") for name, annotation, _ in parameters]
    if is_whole:
        adapter = adapters[0]
    else:
        adapter = TypeAdapter(model_of_parameters(parameters, others="forbid" if takes_all else "ignore"))
    return adapter, {} if schema_given else schema_of(adapter, "validation", f"the input of {what}")


def _is_plain(annotation: Any, default: Any = NO_DEFAULT) -> bool:
    """Whether whatever is equal to it reads alike. Unions of the same types in another order are equal, too."""
    if default is not NO_DEFAULT and type(default) not in _PLAIN_DEFAULTS:
        return False
    try:
        return annotation in _PLAIN
    except TypeError:  # It has no hash.
        return False


@lru_cache
def _read_plain(
    parameters: tuple[tuple[str, Any, Any], ...],
    is_whole: bool,
    schema_given: bool,
    takes_all: bool,
    defaults: tuple[type, ...],
) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """As `_read`, once for all tools that are alike: most take the same few types. `defaults` tells True from 1."""
    return _read(parameters, is_whole, schema_given, takes_all, "")


def _bind_whole(adapter: TypeAdapter[Any], name: str, context_name: str | None) -> Bind:
    def bind(context: Any, text: str) -> dict[str, Any]:
        arguments = {name: _validated(adapter, text)}
        if context_name is not None:
            arguments[context_name] = context
        return arguments

    return bind


def _bind_members(adapter: TypeAdapter[Any], names: list[str], context_name: str | None) -> Bind:
    fields = [(f"p{index}", name) for index, name in enumerate(names)]

    def bind(context: Any, text: str) -> dict[str, Any]:
        model = _validated(adapter, text)
        arguments = {name: getattr(model, field) for field, name in fields}
        if context_name is not None:
            arguments[context_name] = context
        return arguments

    return bind


def _validated(adapter: TypeAdapter[Any], text: str) -> Any:
    # As JSON, not as Python: a strict model takes a date from JSON text, but not from a str.
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        # Values stay out of the message: they may be sensitive.
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = [f"/{'/'.join(map(str, p['loc']))}: {p['msg']}" for p in problems[:VIOLATIONS_SHOWN_MAX]]
        raise Failure("invalid_input", "; ".join(shown), category="invalid", effect="not_done") from None


def _output(hints: Mapping[str, Any], schema_given: bool, what: str) -> tuple[Dump, dict[str, Any] | None]:
    annotation = hints.get("return", Any)
    if annotation is Any:
        return _dump_anything, None
    if _is_plain(annotation):
        adapter, derived = _write_plain(annotation)
        schema = None if schema_given else derived
    else:
        adapter = adapter_of(annotation, f"the output of {what}")
        schema = None if schema_given else schema_of(adapter, "serialization", f"the output of {what}")

    def dump(value: Any) -> Any:
        try:
            return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (ValueError, RecursionError):
            return value

    return dump, schema


@lru_cache
def _write_plain(annotation: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What writes an output of a plain type, and its schema; as `_read_plain`."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return adapter, schema_of(adapter, "serialization", "")


def _dump_anything(value: Any) -> Any:
    # What cannot be JSON goes on as it is: the output gate refuses it by path.
    try:
        return to_jsonable_python(value, by_alias=True)
    except (ValueError, RecursionError):
        return value


def _is_object(annotation: Any) -> bool:
    return isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation) or is_typeddict(annotation)
    )
