"""The TypeScript and Go stubs build and work in their own toolchains."""

from __future__ import annotations

import pytest

from tests.toolchain import ROOT, install_node_packages, need, run

pytestmark = pytest.mark.timeout(300)


def test_the_go_stubs_build_and_their_tests_pass() -> None:
    need("go version")
    run("go", "vet", "./...", folder=ROOT / "generated/go")
    run("go", "vet", "./...", folder=ROOT / "clients/go")
    run("go", "test", "./...", folder=ROOT / "clients/go")


def test_the_typescript_stubs_type_check_and_their_tests_pass() -> None:
    need("node --version")
    install_node_packages()
    run("npm", "run", "check", folder=ROOT / "clients/typescript")
    run("npm", "test", folder=ROOT / "clients/typescript")
