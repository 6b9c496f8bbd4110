"""JSON Schema 2020-12 from Python types. Refers only within itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from placet.failure import DeclarationError

NO_DEFAULT: Any = object()


class _WithoutFieldTitles(GenerateJsonSchema):
    """Titles made from member names say nothing and would be part of the contract digest."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        document = super().generate(schema, mode)
        for model in (document, *document.get("$defs", {}).values()):
            model.pop("title", None)
        return document


def adapter_of(annotation: Any, what: str) -> TypeAdapter[Any]:
    """Raises DeclarationError, naming `what`, for a type that pydantic does not know."""
    try:
        return TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise DeclarationError(
            f"{what} has a type that cannot be JSON ({_first_line(error)}); "
            "use a pydantic model, a dataclass, str, int, float, bool, list or dict"
        ) from None


def schema_of(adapter: TypeAdapter[Any], mode: JsonSchemaMode, what: str) -> dict[str, Any]:
    """The schema of what is read ("validation") or written ("serialization"). Raises DeclarationError."""
    try:
        return adapter.json_schema(mode=mode, schema_generator=_WithoutFieldTitles)
    except PydanticInvalidForJsonSchema as error:
        raise DeclarationError(
            f"{what} has a type without JSON Schema ({_first_line(error)}); "
            "pass input_schema= or output_schema=, or use another type"
        ) from None


def model_of_parameters(
    parameters: Iterable[tuple[str, Any, Any]], *, others: Literal["forbid", "ignore"]
) -> type[BaseModel]:
    """A model with one member per (name, annotation, default); `others`: what becomes of members without a parameter.

    Its fields are called p0, p1, … in order and answer to the parameters' names by alias, so that no parameter name can
    collide with a method of BaseModel.
    """
    fields: dict[str, Any] = {}
    for index, (name, annotation, default) in enumerate(parameters):
        given = (
            default
            if isinstance(default, FieldInfo)
            else Field()
            if default is NO_DEFAULT
            else Field(default)
        )
        fields[f"p{index}"] = (Annotated[annotation, Field(alias=name)], given)
    config = ConfigDict(extra=others, arbitrary_types_allowed=False)
    model: type[BaseModel] = create_model("Input", __config__=config, **fields)
    return model


def schema_text(schema: Mapping[str, Any], what: str) -> str:
    """The text of a schema, members sorted. Raises DeclarationError unless it is JSON and refers only within itself."""
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise DeclarationError(
                f"{what} refers to {reference!r}; copy what it refers to under $defs and refer to it with '#/$defs/…'"
            )
    try:
        return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{what} is not JSON: {error}") from None


def _references(node: Any) -> Iterable[str]:
    if isinstance(node, Mapping):
        for name, member in node.items():
            if name in ("$ref", "$dynamicRef") and isinstance(member, str):
                yield member
            else:
                yield from _references(member)
    elif isinstance(node, list | tuple):
        for element in node:
            yield from _references(element)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")


def output_text(output: Any, what: str) -> str:
    """The schema of what a run ends with: of a type, or as it is given; empty for None."""
    if output is None:
        return ""
    schema = (
        output if isinstance(output, Mapping) else schema_of(adapter_of(output, what), "validation", what)
    )
    return schema_text(schema, what)
