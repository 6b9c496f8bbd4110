"""People say yes to a change of what was there then: what has come since is not what they have seen."""

from typing import Any

import pytest

from placet.failure import Failure
from placet_server.core.admission.begin import begin
from placet_server.core.admission.policy_set import ADMIT_POLICY_SET
from placet_server.core.governance.recovery import redrive_members
from placet_server.core.governance.tools import REDRIVE, ROLL_BACK_POLICY_SET, WITHDRAW_CAPABILITY
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import RedriveCommand
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.document import written
from placet_server.model.lifecycle import ActionState
from placet_server.model.wait import Wait
from tests.core import policies
from tests.core.governance import APPROVER, STRICT, WEAKER, ask, base, serve, shop
from tests.core.kernels import ALICE, QUEUE, claimed, open_kernel, put, read, work_off
from tests.core.people import vote
from tests.postgres import Database

ANY = '@id("any") permit (principal, action, resource);'
ASK = (
    ANY
    + '@id("ask") @approval("1 of role:approver") permit (principal, action in Action::"placet", resource);'
)


async def wait_of(kernel: Kernel, capability: str, members: dict[str, Any]) -> Wait:
    with pytest.raises(ApprovalRequired) as asked:
        await ask(kernel, capability, members)
    assert asked.value.outcome is not None
    (wait,) = asked.value.outcome.waits
    return wait


async def test_what_is_not_there_any_more_is_neither_withdrawn_nor_replaced(database: Database) -> None:
    async with open_kernel(database.dsn, base(), queue=QUEUE) as kernel:
        serve(kernel, shop())
        await kernel.catalog.admit(ALICE, STRICT)
        await policies.admit(kernel, ASK)
        waits = [
            await wait_of(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find"}),
            await wait_of(kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of(ANY))}),
            await wait_of(kernel, ROLL_BACK_POLICY_SET, {"revision": 0}),
        ]
        await kernel.catalog.admit(ALICE, WEAKER)
        await policies.admit(kernel, ASK + "// and more")
        for wait in waits:
            await vote(kernel, wait.approval_id, APPROVER)
        await work_off(kernel)
        ends = [await read(kernel, wait.action_id) for wait in waits]
        assert ["STALE_DIGEST"] * 3 == [end.failure_code for end in ends]
        assert 2 == (await policies.sets_of(kernel).get("acme")).revision
        assert not (await kernel.catalog.get_capability("acme", "shop.find")).stored.is_withdrawn


async def test_those_alone_are_tried_again_that_were_shown(database: Database) -> None:
    app = base()

    @app.tool("base.fail", "idempotent", attempts_max=1)
    async def fail() -> None:
        raise Failure("declined", effect="not_done")

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        await policies.admit(kernel, ASK)
        shown = (await put(kernel, "base.fail", {}, "1")).action
        await work_off(kernel)
        wait = await wait_of(kernel, REDRIVE, redrive_members(RedriveCommand(count_max=10)))
        later = (await put(kernel, "base.fail", {}, "2")).action
        await work_off(kernel)
        await vote(kernel, wait.approval_id, APPROVER)
        await work_off(kernel)
        assert [2, 1] == [(await read(kernel, each.action_id)).generation for each in (shown, later)]


async def test_what_was_withdrawn_after_its_claim_does_not_begin(database: Database) -> None:
    async with open_kernel(database.dsn, base(), queue=QUEUE) as kernel:
        serve(kernel, shop())
        await kernel.catalog.admit(ALICE, STRICT)
        found = (await put(kernel, "shop.find", {"text": "it"}, "k")).action
        running = await claimed(kernel, found.action_id)
        await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find"})
        assert await begin(kernel.engine, running, running.input_json or "") is None
        ended = await read(kernel, found.action_id)
        assert (ActionState.REFUSED, "CAPABILITY_NOT_FOUND") == (ended.state, ended.reason)
