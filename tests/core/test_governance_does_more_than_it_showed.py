"""What a governing action does is what was shown of it, whatever has moved between the look and the change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.governance.tools import REDRIVE, WITHDRAW_CAPABILITY
from placet_server.core.kernel import Kernel
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.errors import MalformedRequest, StaleDigest
from placet_server.model.lifecycle import ActionState
from tests.core import policies
from tests.core.governance import APPROVER, STRICT, WEAKER, Stalled, admit, ask, base, serve, shop
from tests.core.kernels import ALICE, QUEUE, dispatch, open_kernel, output, put, read, run, until, work_off
from tests.core.people import vote
from tests.core.workshop import Workshop
from tests.postgres import Database

ANY = "permit (principal, action, resource);"


@pytest.fixture
async def kernel(database: Database) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, base(), queue=QUEUE) as opened:
        serve(opened, shop())
        yield opened


async def test_what_was_withdrawn_meanwhile_is_not_brought_back_unseen(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    both = replace(WEAKER, capabilities=(*STRICT.capabilities, *WEAKER.capabilities))
    with pytest.raises(ApprovalRequired) as asked:
        await admit(kernel, both)
    assert asked.value.outcome is not None
    (wait,) = asked.value.outcome.waits
    await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find"})
    await vote(kernel, wait.approval_id, APPROVER)
    await work_off(kernel)
    ended = await read(kernel, wait.action_id)
    assert (ActionState.FAILED, "STALE_DIGEST") == (ended.state, ended.failure_code)
    assert (await kernel.catalog.get_capability("acme", "shop.find", "1")).stored.is_withdrawn


async def test_a_withdrawal_takes_what_was_shown_or_nothing(kernel: Kernel) -> None:
    """Somebody admits another version between the last look and the change."""
    await policies.admit(kernel, ANY)
    await admit(kernel, STRICT)
    count = kernel.catalog.count_open

    async def slow(*asked: Any) -> Any:
        kernel.catalog.count_open = count  # type: ignore[method-assign]
        counts = await count(*asked)
        await kernel.catalog.admit(ALICE, WEAKER)
        return counts

    kernel.catalog.count_open = slow  # type: ignore[assignment,method-assign]
    with pytest.raises(StaleDigest):
        await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find"})
    assert not (await kernel.catalog.get_capability("acme", "shop.find", "1")).stored.is_withdrawn


async def test_a_redrive_tries_no_more_again_than_was_shown(database: Database) -> None:
    """What had not ended when the policies were told of none may have failed by then."""
    work = Workshop()

    async def decline(_: Context) -> Any:
        raise Failure("declined", "no", category="permanent", effect="not_done")

    work.script = decline
    async with open_kernel(database.dsn, work.app, queue=QUEUE) as kernel:
        stalled = Stalled(kernel, REDRIVE)
        failing = (await put(kernel, "work.idempotent", {}, "k")).action.action_id
        asked = (await put(kernel, REDRIVE, {"action_ids": [failing]})).action.action_id
        await dispatch(kernel)
        await stalled.began.wait()
        await until(lambda: len(kernel.engine.runs) == 1)
        stalled.may_go_on.set()
        await work_off(kernel)
        done, tried = await read(kernel, asked), await read(kernel, failing)
        assert (ActionState.FAILED, 1) == (tried.state, tried.generation)
        assert ["moved"] == [each["refused_rule"] for each in output(done)["results"]]
        # By name nobody means all by saying nothing.
        with pytest.raises(MalformedRequest):
            await run(kernel, REDRIVE, {})
