"""The blocking and the asyncio client offer the same, and the room for calls is the server's."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

from placet.aio import AsyncClient
from placet.client import Client
from placet.requests import CallArguments, CallOptions, input_text


def _public(kind: type[Any]) -> dict[str, list[str]]:
    return {
        name: [
            str(parameter).replace("Async", "") for parameter in inspect.signature(member).parameters.values()
        ]
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    blocking, asyncio = _public(Client), _public(AsyncClient)
    for parameters in (blocking, asyncio):
        parameters["connect"] = [parameter.split(":")[0] for parameter in parameters["connect"]]
    assert blocking == asyncio


def test_options_and_keyword_arguments_are_one_list() -> None:
    assert set(CallArguments.__annotations__) == set(CallOptions.__dataclass_fields__)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_an_input_that_is_not_json_never_leaves(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        input_text(value)


def test_bytes_are_json_text_as_they_are() -> None:
    assert '{"a":1,"a":2}' == input_text(b'{"a":1,"a":2}')


def test_declaring_needs_no_grpc_and_calling_no_pydantic() -> None:
    program = (
        "import sys, placet; placet.App; assert 'grpc' not in sys.modules\n"
        "for name in [name for name in sys.modules if name.startswith('placet.')]: del sys.modules[name]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    program = "import sys, placet; placet.Client; placet.AsyncClient; assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
