"""An attempt that governs and was given up meanwhile changes nothing any more, whatever has become of its action."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from placet.failure import Failure
from placet_server.core.governance.tools import ADMIT_MANIFEST, REDRIVE
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.rescue import rescue
from placet_server.model.errors import StaleDigest
from placet_server.model.lifecycle import ActionState
from tests.core import policies
from tests.core.governance import STRICT, WEAKER, WEAKEST, Stalled, admit, ask, base, serve, shop
from tests.core.kernels import ALICE, BOB, QUEUE, declare_dead, open_kernel, put, read, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database


async def lose(first: Kernel, second: Kernel) -> None:
    await declare_dead(first)
    assert 1 == (await rescue(second.journal)).requeued


async def test_an_admission_whose_action_has_failed_is_not_made_later(database: Database) -> None:
    async with open_kernel(database.dsn, base()) as first, open_kernel(database.dsn, base()) as second:
        for kernel in (first, second):
            serve(kernel, shop())
        await policies.admit(first, "permit (principal, action, resource);")
        await admit(first, STRICT)
        stalled = Stalled(first, ADMIT_MANIFEST)
        late = asyncio.ensure_future(admit(first, WEAKER, key="k"))
        await stalled.began.wait()
        await admit(second, WEAKEST, key="another")
        await lose(first, second)
        with pytest.raises(StaleDigest):
            await admit(second, WEAKER, key="k")
        await admit(second, STRICT, key="back")
        stalled.may_go_on.set()
        await asyncio.wait([late])
        assert late.exception() is not None
        assert STRICT.digest() == (await second.catalog.get_manifest("acme", "shop")).digest


async def test_a_redrive_that_was_done_by_another_attempt_is_not_done_again(database: Database) -> None:
    work = Workshop()

    async def decline(_: Any) -> Any:
        raise Failure("declined", "no", category="permanent", effect="not_done")

    work.script = decline
    async with (
        open_kernel(database.dsn, work.app) as first,
        open_kernel(database.dsn, work.app, queue=QUEUE) as second,
    ):
        action_id = (await put(second, "work.idempotent", {}, "k")).action.action_id
        await work_off(second)
        stalled = Stalled(first, REDRIVE)
        late = asyncio.ensure_future(ask(first, REDRIVE, {"action_ids": [action_id]}, caller=ALICE, key="r"))
        await stalled.began.wait()
        await lose(first, second)
        await ask(second, REDRIVE, {"action_ids": [action_id]}, caller=ALICE, key="r")
        await work_off(second)
        await ask(second, REDRIVE, {"action_ids": [action_id]}, caller=BOB)
        await work_off(second)
        stalled.may_go_on.set()
        await asyncio.wait([late])
        tried = await read(second, action_id)
        assert (ActionState.FAILED, 3) == (tried.state, tried.generation)
