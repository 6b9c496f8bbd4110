"""No tracked file names a package registry or a folder of somebody's machine."""

from __future__ import annotations

import re

from tests.house.source_tree import ROOT, files

# In parts, so that this file passes its own test.
REGISTRY_DOMAINS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("deb", "debian", "org"),
    )
]
# A look behind at each character would cost seconds: where a name of them stands is found first.
REGISTRY = re.compile(
    "|".join(rf"{re.escape(domain)}(?<![\w-]{re.escape(domain)})" for domain in REGISTRY_DOMAINS)
)
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|root|home/[a-z]\w*|Users/\w+)/")
LOCK_FILES = {"uv.lock", "pylock.toml", "poetry.lock", "Pipfile.lock"}


def test_no_file_names_a_package_registry() -> None:
    assert [] == _matches(REGISTRY)


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [] == _matches(MACHINE_PATH)


def test_no_lock_file_of_a_kind_that_records_addresses_is_kept() -> None:
    assert [] == [path for path in files() if path.rpartition("/")[2] in LOCK_FILES]


def _matches(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in files():
        text = (ROOT / path).read_bytes().decode("utf-8", errors="replace")
        found += [f"{path}: {match.group()}" for match in pattern.finditer(text)]
    return found
