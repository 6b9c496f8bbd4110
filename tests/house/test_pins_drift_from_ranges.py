"""pyproject.toml, requirements/*.txt and docs/dependencies.md tell one story."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source_tree import read

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
EXTRAS_OF = {
    "dev": ("agents", "connector", "server", "embedded", "test", "dev"),
    "server": ("agents", "server", "embedded"),
}


def _declared(*extras: str) -> list[Requirement]:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    requirements = [Requirement(text) for text in texts]
    return [requirement for requirement in requirements if requirement.name != project["name"]]


@pytest.mark.parametrize("name", ["dev", "server"])
def test_every_declared_range_holds_its_pin(name: str) -> None:
    pinned = PINNED.findall(read(f"requirements/{name}.txt"))
    pins = {canonicalize_name(package): version for package, version in pinned}
    outside = []
    for requirement in _declared(*EXTRAS_OF[name]):
        pin = pins.get(canonicalize_name(requirement.name), "0")
        if not requirement.specifier.contains(pin, prereleases=True):
            outside.append(f"{requirement} is pinned to {pin}")
    assert [] == outside


@pytest.mark.parametrize("name", ["build", "dev", "server"])
def test_every_pin_carries_a_hash(name: str) -> None:
    entries = re.split(r"\n(?=[A-Za-z0-9])", read(f"requirements/{name}.txt").strip())
    assert [] == [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry]


def test_every_dependency_is_explained() -> None:
    explained = set(re.findall(r"^\| `([^`]+)`", read("docs/dependencies.md"), re.MULTILINE))
    declared = {
        requirement.name
        for requirement in _declared("agents", "connector", "server", "embedded", "test", "dev")
    }
    assert set() == declared - explained
