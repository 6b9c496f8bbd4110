"""What the documents repeat of the code is what the code says."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from placet.status import _BY_REASON
from placet.v1 import error_reason_pb2
from placet_server.rpc.permission import SCOPES
from tests.docs.snippets import blocks, local_links
from tests.house.source_tree import ROOT, files, read
from tools import write_reference as reference

DOCUMENTS = [path for path in files() if path.endswith(".md") and "/" not in path.removeprefix("docs/")]
# Metadata that an exception makes up of something else than its fields.
COUNTED = {"violations", "problems"}


@pytest.mark.parametrize("path", reference.documents(), ids=lambda path: path.name)
def test_generated_parts_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert reference.written(text) == text, "run tools/write_reference.py"


def test_every_reason_has_a_class_an_exception_and_advice() -> None:
    values = error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
    names = {name.removeprefix("ERROR_REASON_") for name in values} - {"UNSPECIFIED"}
    assert names == {reason.name for reason in reference.reasons()}
    assert names == reference.classes().keys()
    assert names == _BY_REASON.keys()
    assert names == reference.ADVICE.keys()


@pytest.mark.parametrize("reason", reference.reasons(), ids=lambda reason: reason.name)
def test_the_contract_names_the_code_and_metadata_that_the_server_sends(reason: reference.Reason) -> None:
    error = reference.classes()[reason.name]
    assert reason.comment.startswith(error.code.value)
    known = {field.name for field in fields(error)} | COUNTED  # type: ignore[arg-type]
    assert set() == json.loads(reason.sample).keys() - known


def test_every_rpc_needs_the_scope_that_the_protocol_says() -> None:
    told: dict[str, str | None] = {}
    service = ""
    for line in read("docs/protocol.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3:
            service = cells[0] or service
            scope = re.match("`([a-z.]+)`", cells[2])
            for name in re.findall("[A-Za-z]+", cells[1].partition(";")[0]):
                told[f"/placet.v1.{service}/{name}"] = scope and scope[1]
    assert {path: told.get(path, "not there") for path in SCOPES} == SCOPES


def test_what_cannot_happen_is_shown_by_tests_that_are_there() -> None:
    named = re.findall(r"`(\w+/\w+\.py): (test_\w+)`", read("docs/what-cannot-happen.md"))
    assert len(named) >= 27
    assert [] == [
        name for path, name in named if not re.search(rf"^(async )?def {name}\(", read(f"tests/{path}"), re.M)
    ]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    assert [] == [link for link in local_links(document) if not (folder / link).exists()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_blocks_are_python(document: str) -> None:
    for block in blocks(document):
        if block.language == "python":
            compile(
                block.text, document, "exec", dont_inherit=True, flags=0x2000
            )  # PyCF_ALLOW_TOP_LEVEL_AWAIT
