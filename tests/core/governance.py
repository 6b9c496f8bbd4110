"""Asking a kernel for what governs it, as the RPCs do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from placet.app import App
from placet_server.core.admission.pipeline import Call
from placet_server.core.governance.govern import Governed, govern, invocation_of
from placet_server.core.governance.governor import Governor
from placet_server.core.governance.tools import ADMIT_MANIFEST
from placet_server.core.governance.use import Members, Proposal, Use
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.manifest import Manifest
from placet_server.rpc.convert.capability import manifest_of
from tests.core.kernels import ALICE

APPROVER = Caller(tenant="acme", subject="petra", roles=("approver",), scopes=frozenset({"*"}))
ALICE_APPROVES = replace(ALICE, roles=("approver",))


def base() -> App:
    """What the server itself offers."""
    app = App("base")

    @app.tool("base.echo", "read")
    def echo(text: str) -> str:
        return text

    return app


def shop() -> App:
    """`shop.find` in three versions, each promising less than the one before."""
    app = App("shop")

    def declare(version: str, attempts_max: int) -> None:
        @app.tool("shop.find", "read", version=version, attempts_max=attempts_max)
        async def find(text: str) -> str:
            return text

    for version, attempts_max in (("1", 1), ("2", 3), ("3", 4)):
        declare(version, attempts_max)
    return app


def governor_of(kernel: Kernel) -> Governor:
    assert isinstance(kernel.governor, Governor)
    return kernel.governor


def serve(kernel: Kernel, app: App) -> None:
    """Its handlers are there, and who offers them is for a tenant to say."""
    kernel.engine.handlers._tools |= {(tool.name, tool.version): tool for tool in app.tools}
    kernel.catalog._handlers = kernel.engine.handlers.claims()


def _only(version: str) -> Manifest:
    whole = manifest_of(shop().manifest())
    return replace(whole, capabilities=tuple(c for c in whole.capabilities if c.version == version))


STRICT, WEAKER, WEAKEST = _only("1"), _only("2"), _only("3")


async def ask(
    kernel: Kernel,
    capability: str,
    members: dict[str, Any],
    *,
    caller: Caller = ALICE,
    key: str = "",
    again_if_stale: bool = False,
) -> Governed:
    call = Call(caller=caller, invocation=invocation_of(capability, key), time_left_seconds=10.0)
    return await govern(kernel, call, members, again_if_stale=again_if_stale)


async def admit(kernel: Kernel, wanted: Manifest, **options: Any) -> Governed:
    return await ask(kernel, ADMIT_MANIFEST, {"manifest": wanted.to_document()}, **options)


class Stalled:
    """Does its work once it may go on."""

    def __init__(self, kernel: Kernel, capability: str) -> None:
        uses: dict[str, Use] = kernel.governor._uses  # type: ignore[attr-defined]
        self._use = uses[capability]
        uses[capability] = self
        self.scope, self.asked = self._use.scope, self._use.asked
        self.began, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        return await self._use.propose(caller, given)

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        self.began.set()
        await self.may_go_on.wait()
        return await self._use.run(caller, action, members)
