"""A file that a variable names and nobody can read keeps the server from starting, by the name of the variable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.support import run_process


@pytest.mark.parametrize("name", ["MODEL_FILE", "CREDENTIAL_FILE", "AUTHORITY_FILE", "QUOTA_FILE"])
def test_a_missing_file_is_told_by_the_variable_that_names_it(name: str) -> None:
    file: dict[str, Any] = {f"PLACET_{name}": "gone.toml"}
    ended = run_process("serve", "--port", "0", PLACET_EPHEMERAL="true", PLACET_IDENTITY_DEV="true", **file)
    assert (3, f"placet: PLACET_{name}: gone.toml: No such file or directory\n") == (ended.code, ended.err)
