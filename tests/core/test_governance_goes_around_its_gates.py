"""What governs the server passes the gates itself: nobody weakens alone, and what was agreed to is what is done."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.admission.catalog import Catalog
from placet_server.core.admission.policy_set import ADMIT_POLICY_SET
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.governance.catalog import AdmitManifest
from placet_server.core.governance.tools import (
    ADMIT_MANIFEST,
    REDRIVE,
    RESOLVE_AMBIGUOUS,
    ROLL_BACK_POLICY_SET,
    WITHDRAW_CAPABILITY,
)
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.rescue import close_withdrawn, rescue
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.decision_errors import ApprovalDenied, ApprovalRequired, NotEligible
from placet_server.model.document import written
from placet_server.model.errors import (
    MalformedRequest,
    ManifestRefused,
    NotFound,
    PlacetError,
    ScopeMissing,
    StaleDigest,
)
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.policy_errors import PolicyRefused, PolicySetRefused
from placet_server.rpc.convert.capability import manifest_of
from tests.core import policies
from tests.core.governance import (
    ALICE_APPROVES,
    APPROVER,
    STRICT,
    WEAKER,
    WEAKEST,
    admit,
    ask,
    base,
    governor_of,
    serve,
    shop,
)
from tests.core.kernels import (
    ALICE,
    BOB,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.people import DENY, vote
from tests.postgres import Database

ANY = "permit (principal, action, resource);"


@pytest.fixture
async def kernel(database: Database) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, base(), queue=QUEUE) as opened:
        serve(opened, shop())
        yield opened


async def in_force(kernel: Kernel) -> str:
    return (await kernel.catalog.get_manifest("acme", "shop")).digest


async def waiting(kernel: Kernel, *wanted: Any, **options: Any) -> list[Any]:
    """The waits that admissions end with."""
    waits: list[Any] = []
    for each in wanted:
        with pytest.raises(ApprovalRequired) as asked:
            await admit(kernel, each, **options)
        assert asked.value.outcome is not None
        waits += asked.value.outcome.waits
    return waits


async def test_what_weakens_nothing_is_done_at_once_and_has_its_evidence(kernel: Kernel) -> None:
    done = await admit(kernel, STRICT)
    assert (STRICT.digest(), True) == (done.output["digest"], done.output["changed"])
    action = await read(kernel, done.action_id)
    told = json.loads(action.input_json or "")
    assert (ActionState.SUCCEEDED, "alice", ADMIT_MANIFEST) == (
        action.state,
        action.requester.subject,
        action.capability,
    )
    assert (True, 0, "", STRICT.digest()) == tuple(
        told[name] for name in ("first", "weakenings", "replaces", "digest")
    )
    assert action.verdict_digest is not None


async def test_a_weakening_needs_a_second_person(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    (wait,) = await waiting(kernel, WEAKER)
    with pytest.raises(NotEligible):
        await vote(kernel, wait.approval_id, ALICE_APPROVES)
    with pytest.raises(NotEligible):
        await vote(kernel, wait.approval_id, BOB)
    await work_off(kernel)
    assert STRICT.digest() == await in_force(kernel)
    await vote(kernel, wait.approval_id, APPROVER)
    await work_off(kernel)
    assert WEAKER.digest() == await in_force(kernel)
    action = await read(kernel, wait.action_id)
    assert (1, True) == (json.loads(action.input_json or "")["weakenings"], output(action)["changed"])


async def test_the_same_request_meets_what_waits_and_then_what_was_done(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    first = await waiting(kernel, WEAKER)
    assert first == await waiting(kernel, WEAKER)
    assert first != await waiting(kernel, WEAKER, caller=BOB)
    await vote(kernel, first[0].approval_id, APPROVER)
    done = await admit(kernel, WEAKER)
    assert first[0].action_id == done.action_id
    # What it replaced is gone, so this is another request: there is nothing to do.
    again = await admit(kernel, WEAKER)
    assert (False, WEAKER.digest()) == (again.output["changed"], again.output["digest"])


async def test_a_key_ties_requests_together_however_the_catalogue_moves(kernel: Kernel) -> None:
    first = await admit(kernel, STRICT, key="one")
    assert first == await admit(kernel, STRICT, key="one")
    back = await admit(kernel, STRICT)
    assert (False, True) == (back.output["changed"], first.output["changed"])


async def test_going_there_and_back_is_done_each_time(kernel: Kernel) -> None:
    await policies.admit(kernel, ANY)
    for wanted in (STRICT, WEAKER, STRICT, WEAKER):
        done = await admit(kernel, wanted)
        assert done.output["changed"]
        assert wanted.digest() == await in_force(kernel)


async def test_of_two_that_wait_the_second_finds_what_it_was_to_replace_gone(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    two = await waiting(kernel, WEAKER, WEAKEST)
    for wait in two:
        await vote(kernel, wait.approval_id, APPROVER)
    await work_off(kernel)
    ends = [await read(kernel, wait.action_id) for wait in two]
    assert {ActionState.SUCCEEDED, ActionState.FAILED} == {end.state for end in ends}
    failed = next(end for end in ends if end.state is ActionState.FAILED)
    assert ("STALE_DIGEST", "conflict") == (failed.failure_code, (failed.failure_category or "").lower())


async def test_what_ends_stale_tells_its_caller_so(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    with pytest.raises(ApprovalRequired) as asked:
        await admit(kernel, WEAKER, key="k")
    assert asked.value.outcome is not None
    await kernel.catalog.admit(ALICE, WEAKEST)
    await vote(kernel, asked.value.outcome.waits[0].approval_id, APPROVER)
    with pytest.raises(StaleDigest) as stale:
        await admit(kernel, WEAKER, key="k")
    assert (STRICT.digest(), WEAKEST.digest()) == (stale.value.expected, stale.value.actual)
    governor_of(kernel).errors._kept.clear()
    with pytest.raises(PlacetError, match="STALE_DIGEST") as later:
        await admit(kernel, WEAKER, key="k")
    assert stale.value.text() == later.value.text()
    assert WEAKEST.digest() == await in_force(kernel)


async def test_what_is_wrong_with_a_request_leaves_no_action(kernel: Kernel) -> None:
    empty = replace(STRICT, capabilities=())
    with pytest.raises(ManifestRefused):
        await admit(kernel, empty)
    expected = {"manifest": STRICT.to_document(), "expected_digest": "0" * 64}
    with pytest.raises(StaleDigest):
        await ask(kernel, ADMIT_MANIFEST, expected)
    with pytest.raises(CapabilityNotFound):
        await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find"})
    with pytest.raises(PolicySetRefused):
        await ask(
            kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of("permit (principal, action);"))}
        )
    with pytest.raises(NotFound):
        await ask(kernel, ROLL_BACK_POLICY_SET, {"revision": 7})
    verdict = {"action_id": "0" * 8 + "-0000-7000-8000-" + "0" * 12, "finding": "NOT_DONE"}
    with pytest.raises(NotFound):
        await ask(kernel, RESOLVE_AMBIGUOUS, verdict | {"reason": "r", "evidence": "e"})
    assert [] == await states(kernel)


async def test_nobody_says_for_himself_how_harmless_it_is(kernel: Kernel) -> None:
    members = {"manifest": STRICT.to_document(), "weakenings": 0}
    with pytest.raises(MalformedRequest) as refused:
        await run(kernel, ADMIT_MANIFEST, members)
    assert ["input_json/weakenings"] == [violation.field for violation in refused.value.violations]


async def test_calling_it_by_name_needs_the_same_scope_and_waits_alike(kernel: Kernel) -> None:
    few = replace(ALICE, scopes=frozenset({"actions.execute"}))
    members = {"manifest": STRICT.to_document()}
    with pytest.raises(ScopeMissing):
        await run(kernel, ADMIT_MANIFEST, members, caller=few)
    with pytest.raises(ScopeMissing):
        await put(kernel, REDRIVE, {"action_ids": ["0" * 8 + "-0000-7000-8000-" + "0" * 12]}, caller=few)
    done = await run(kernel, ADMIT_MANIFEST, members)
    assert output(done.action)["changed"]
    with pytest.raises(ApprovalRequired):
        await run(kernel, ADMIT_MANIFEST, {"manifest": WEAKER.to_document()}, "mine")


async def test_a_lost_process_between_approval_and_admission_leaves_it_to_another(database: Database) -> None:
    async with open_kernel(database.dsn, base()) as first:
        serve(first, shop())
        await admit(first, STRICT)
        (wait,) = await waiting(first, WEAKER)
        await vote(first, wait.approval_id, APPROVER)
    async with open_kernel(database.dsn, base(), queue=QUEUE) as second:
        serve(second, shop())
        await work_off(second)
        assert WEAKER.digest() == await in_force(second)


async def test_what_was_changed_before_the_process_died_is_not_changed_again(database: Database) -> None:
    """The change is in the store, and whoever runs the action once more knows of it, whatever has come after."""
    changed = asyncio.Event()

    class Dies(AdmitManifest):
        async def run(self, caller: Caller, action: Action, members: Members) -> Members:
            done = await super().run(caller, action, members)
            if members["digest"] == WEAKER.digest():
                changed.set()
                await asyncio.Event().wait()
            return done

    async with open_kernel(database.dsn, base()) as first, open_kernel(database.dsn, base()) as second:
        for kernel in (first, second):
            serve(kernel, shop())
        await policies.admit(first, ANY)
        governor_of(first)._uses = {**governor_of(first)._uses, ADMIT_MANIFEST: Dies(first.catalog)}
        await admit(first, STRICT)
        lost = asyncio.ensure_future(admit(first, WEAKER, key="k"))
        await changed.wait()
        await admit(second, STRICT, key="back")
        await declare_dead(first)
        await rescue(second.journal)
        done = await admit(second, WEAKER, key="k")
        assert (True, WEAKER.digest()) == (done.output["changed"], done.output["digest"])
        assert STRICT.digest() == await in_force(second)
        lost.cancel()


async def test_policies_govern_a_redrive_and_a_verdict(kernel: Kernel) -> None:
    await policies.admit(kernel, ANY + ' forbid (principal, action in Action::"placet.recovery", resource);')
    missing = "0" * 8 + "-0000-7000-8000-" + "0" * 12
    with pytest.raises(PolicyRefused):
        await ask(kernel, REDRIVE, {"action_ids": [missing]})
    assert [] == await states(kernel)


async def test_a_policy_set_is_put_in_force_under_the_one_before(kernel: Kernel) -> None:
    own = (
        ANY
        + '@approval("1 of role:approver") permit (principal, action in Action::"placet.policy", resource);'
    )
    first = await ask(kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of(own))})
    assert (1, True) == (first.output["revision"], first.output["changed"])
    with pytest.raises(ApprovalRequired) as asked:
        await ask(kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of(ANY))})
    with pytest.raises(ApprovalRequired):
        await ask(kernel, ROLL_BACK_POLICY_SET, {"revision": 0})
    assert asked.value.outcome is not None
    await vote(kernel, asked.value.outcome.waits[0].approval_id, APPROVER)
    await work_off(kernel)
    assert 2 == (await policies.sets_of(kernel).get("acme")).revision
    back = await ask(kernel, ROLL_BACK_POLICY_SET, {"revision": 1})
    assert (3, True) == (back.output["revision"], back.output["changed"])


@pytest.mark.parametrize(
    "cedar",
    [
        'permit (principal, action, resource) when { resource.effect == "READ" };',
        ANY + ' forbid (principal == User::"alice", action == Action::"placet.policy.admit", resource);',
    ],
)
async def test_nobody_admits_policies_that_he_could_not_replace(kernel: Kernel, cedar: str) -> None:
    document = policies.set_of(cedar)
    with pytest.raises(PolicySetRefused) as refused:
        await ask(kernel, ADMIT_POLICY_SET, {"policy_set": written(document)})
    assert ["locks_out"] == [violation.rule for violation in refused.value.violations]
    assert [] == await states(kernel)
    looked = await policies.sets_of(kernel).admit(ALICE, "acme", document, validate_only=True)
    assert looked.problems


async def test_nor_an_operator_for_all(kernel: Kernel) -> None:
    cedar = 'forbid (principal, action == Action::"placet.policy.admit", resource);'
    with pytest.raises(PolicySetRefused) as refused:
        await ask(kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of(cedar)), "tenant": "-"})
    assert ["locks_out"] == [violation.rule for violation in refused.value.violations]
    harmless = "forbid (principal, action, resource) when { resource.risk > 3 };"
    admitted = await ask(
        kernel, ADMIT_POLICY_SET, {"policy_set": written(policies.set_of(harmless)), "tenant": "-"}
    )
    assert admitted.output["changed"]


async def test_no_handler_governs(database: Database) -> None:
    app = base()

    @app.tool("base.meddle", "idempotent")
    async def meddle(context: Context) -> str:
        try:
            await context.call("one", WITHDRAW_CAPABILITY, {"name": "shop.find"})
        except CallFailed as failed:
            return failed.outcome.reason
        return "done"

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        serve(kernel, shop())
        await kernel.catalog.admit(ALICE, STRICT)
        assert "CONTRACT_VIOLATION" == output((await run(kernel, "base.meddle", {}, "k")).action)
        assert not (await kernel.catalog.get_capability("acme", "shop.find")).stored.is_withdrawn


async def test_two_at_once_that_mind_nothing_are_both_done(kernel: Kernel) -> None:
    await policies.admit(kernel, ANY)
    await admit(kernel, STRICT)
    both = await asyncio.gather(
        *(admit(kernel, each, again_if_stale=True) for each in (WEAKER, WEAKEST)), return_exceptions=True
    )
    assert [True, True] == [each.output["changed"] for each in both if not isinstance(each, BaseException)]


async def test_what_was_withdrawn_is_not_found_and_what_waits_for_it_is_refused(database: Database) -> None:
    app, began, may_end = shop(), asyncio.Event(), asyncio.Event()

    @app.tool("shop.wait", "unsafe")
    async def wait(text: str) -> str:
        began.set()
        await may_end.wait()
        return text

    async with open_kernel(database.dsn, base(), queue=QUEUE) as kernel:
        serve(kernel, app)
        await policies.admit(
            kernel,
            ANY + '@approval("1 of role:approver") permit (principal, action, resource)'
            ' when { context.input has text && context.input.text == "ask" };',
        )
        await kernel.catalog.admit(ALICE, manifest_of(app.manifest()))
        running = await put(kernel, "shop.wait", {"text": "run"}, "r")
        await dispatch(kernel)
        await began.wait()
        queued = await put(kernel, "shop.wait", {"text": "stay"}, "q")
        asked = await put(kernel, "shop.wait", {"text": "ask"}, "w")
        done = await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.wait", "reason": "broken"})
        assert {"versions": ["1"], "open": {"waiting": 1, "queued": 1, "running": 1}} == done.output
        with pytest.raises(CapabilityNotFound):
            await put(kernel, "shop.wait", {"text": "new"}, "n")
        await dispatch(kernel)
        assert 1 == await close_withdrawn(kernel.journal)
        may_end.set()
        await until(lambda: not len(kernel.engine.runs))
        await vote(kernel, asked.action.approval_id or "", APPROVER)
        assert 1 == await close_withdrawn(kernel.journal)
        ends = [await read(kernel, each.action.action_id) for each in (running, queued, asked)]
        assert [ActionState.SUCCEEDED, ActionState.REFUSED, ActionState.REFUSED] == [e.state for e in ends]
        assert {"CAPABILITY_NOT_FOUND"} == {end.reason for end in ends[1:]}
        # Nothing is there to withdraw; to bring it back weakens.
        again = await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.wait"})
        assert [] == again.output["versions"]
        back = await kernel.catalog.admit(ALICE, manifest_of(app.manifest()))
        assert (True, ["version_restored"]) == (back.changed, [each.code for each in back.weakened])
        await put(kernel, "shop.wait", {"text": "new"}, "n")


async def test_another_replica_hears_of_a_withdrawal(kernel: Kernel, database: Database) -> None:
    await kernel.catalog.admit(ALICE, STRICT)
    async with open_kernel(database.dsn, base()) as other:
        serve(other, shop())
        fresh = Catalog(other.journal.pool, handlers=other.engine.handlers, refresh_seconds=0.0)
        assert not (await fresh.resolve("acme", "shop.find")).is_withdrawn
        await ask(kernel, WITHDRAW_CAPABILITY, {"name": "shop.find", "version": "1"})
        with pytest.raises(CapabilityNotFound):
            await fresh.resolve("acme", "shop.find")
        assert (await fresh.resolve("acme", "shop.find", even_withdrawn=True)).is_withdrawn


async def test_what_ended_with_nothing_done_is_asked_for_anew_and_a_no_stays_one(kernel: Kernel) -> None:
    await admit(kernel, STRICT)
    (cancelled,) = await waiting(kernel, WEAKER)
    await cancel_action(kernel.engine, ALICE, cancelled.action_id, "not yet")
    (late,) = await waiting(kernel, WEAKER)
    async with kernel.journal.pool.connection() as connection:
        sql = "update approvals set expire_time = now(), next_time = now() where state = 'PENDING'"
        await connection.execute(sql)
    await pass_time(kernel.journal)
    (denied,) = await waiting(kernel, WEAKER)
    assert 3 == len({each.action_id for each in (cancelled, late, denied)})
    await vote(kernel, denied.approval_id, APPROVER, DENY)
    with pytest.raises(ApprovalDenied):
        await admit(kernel, WEAKER)
    await waiting(kernel, WEAKER, key="all the same")
