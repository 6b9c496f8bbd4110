"""An agent in no manifest, from a file: what `placet ask --inline` sends along with what it asks."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from placet import InlineAgent
from placet_server.cli.complaint import Complaint
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import bytes_of_file

BYTES_MAX = 2**20


def _unlike(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names one of them twice")
    if any(name.startswith("placet.") for name in names):
        raise ValueError("what begins with placet. is the server's own, and no agent calls it")
    return names


_Name = Annotated[str, Field(max_length=128, pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$")]


class _File(BaseModel):
    """As the input schema of `placet.agent` has it, so that what is wrong is told before anything is sent."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str = Field(
        min_length=1, max_length=128, pattern=r"^[a-z0-9][a-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._:/@-]*)?$"
    )
    instructions: str = Field("", max_length=16384)
    tools: Annotated[tuple[_Name, ...], Field(max_length=64, strict=False), AfterValidator(_unlike)] = ()
    delegates: Annotated[tuple[_Name, ...], Field(max_length=16, strict=False), AfterValidator(_unlike)] = ()
    max_tokens: int = Field(0, ge=1, le=1_000_000)


def read_inline(file: str) -> InlineAgent:
    """TOML if it is named so, else JSON. Raises Complaint for all that is wrong with it."""
    content = bytes_of_file(file, "the agent", bytes_max=BYTES_MAX)
    try:
        found = _File.model_validate(_document(file, content))
    except ValidationError as error:
        told = "".join(
            f"\n  {'.'.join(str(step) for step in each['loc']) or '(all)'}: {_words(each)}"
            for each in error.errors(include_url=False)
        )
        raise Complaint(f"{file} says no agent that could be asked:{told}", ExitCode.REFUSED) from None
    return InlineAgent(
        model=found.model,
        instructions=found.instructions,
        tools=found.tools,
        delegates=found.delegates,
        max_tokens=found.max_tokens,
    )


def _words(each: Any) -> str:
    """Of what pydantic has found."""
    bound = each.get("ctx", {})
    match each["type"]:
        case "missing":
            return "it is needed"
        case "extra_forbidden":
            return f"it is no member; there are {', '.join(_File.model_fields)}"
        case "string_pattern_mismatch" if each["loc"] == ("model",):
            return "it is no name of a model, such as fast or openai:gpt-5"
        case "string_pattern_mismatch":
            return "it is no name of a capability, such as orders.lookup; patterns are none"
        case "string_type":
            return "it has to be text"
        case "string_too_short":
            return "it is empty"
        case "string_too_long":
            return f"it has more than {bound['max_length']} characters"
        case "tuple_type":
            return "it has to be a list of names"
        case "too_long":
            return f"it has more than {bound['max_length']} names"
        case "model_type":
            return "it has to be an object"
        case "int_type" | "greater_than_equal" | "less_than_equal":
            return "it has to be a whole number, from 1 to 1000000"
        case "value_error":
            return str(bound["error"])
        case _:
            return str(each["msg"])


def _document(file: str, content: bytes) -> Any:
    is_toml = Path(file).suffix.lower() == ".toml"
    try:
        text = content.decode()
        return tomllib.loads(text) if is_toml else json.loads(text)
    except RecursionError:
        raise Complaint(f"{file} is no agent: it is nested too deeply", ExitCode.REFUSED) from None
    except ValueError as error:
        kind = "TOML" if is_toml else "JSON"
        raise Complaint(f"{file} is no {kind}: {error}", ExitCode.REFUSED) from None
