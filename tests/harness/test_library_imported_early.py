"""The library behind the models takes more than a second to import, and is an extra: nobody imports it who does not ask
a model.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import placet_server.harness as harness
late = {"kinds", "openai_client", "request", "failure", "wire", "local", "exchange", "usage_told"}
for module in pkgutil.walk_packages(harness.__path__, "placet_server.harness."):
    if module.name.rpartition(".")[2] not in late or "provider" not in module.name:
        importlib.import_module(module.name)
found = {name.partition(".")[0] for name in sys.modules}
print(sorted(found & {"pydantic_ai", "openai", "anthropic", "mistralai", "boto3", "httpx2"}))
"""
WITHOUT = """
import asyncio, sys
sys.modules["pydantic_ai"] = None
from placet_server.harness.provider.adapter import load
from placet_server.harness.provider.answer import AgentsUnavailable
try:
    asyncio.run(load())
except AgentsUnavailable as unavailable:
    print(unavailable)
"""


def test_the_harness_is_imported_without_the_library() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "[]" == run.stdout.strip()


def test_a_server_without_the_extra_refuses_agents_and_says_what_is_missing() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "extra_missing: agents need placet[agents]" == run.stdout.strip()
