"""The policy gate: every path, every caller, every way in which a decision could be another's or an old one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet_server.core.admission.execute import Executed, execute_stream
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.decision.policy_rules import CompiledSet
from placet_server.core.decision.policy_slice import Question
from placet_server.core.kernel import Kernel
from placet_server.model.action import Submission
from placet_server.model.approval_text import format_terms
from placet_server.model.caller import Delegate
from placet_server.model.contract import Hazard
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.errors import PlacetError, StaleDigest, StoreUnavailable
from placet_server.model.policy import OPERATOR_TENANT, Overlay
from placet_server.model.policy_errors import PolicyRefused, PolicySetRefused
from placet_server.model.policy_schema import Offered
from placet_server.rpc.convert.capability import manifest_of
from placet_server.store import policy as rows
from tests.core.kernels import ALICE, BOB, EVE, QUEUE, call_of, open_kernel, put, run, states, work_off
from tests.core.people import look
from tests.core.policies import admit, set_of, sets_of
from tests.postgres import Database

ALL = '@id("all") permit (principal, action, resource);\n'
NOT_EVEN_ONCE = ALL + '@id("no-refunds") forbid (principal, action == Action::"shop.refund", resource);'
UP_TO_100 = (
    '@id("small") permit (principal, action in Action::"shop", resource)\n'
    'when { context.input has amount && context.input.amount.lessThanOrEqual(decimal("100.0")) };'
)


class Shop:
    def __init__(self) -> None:
        self.effects: list[float] = []
        self.app = App("shop")

        @self.app.tool("shop.refund", "idempotent")
        async def refund(amount: float) -> float:
            self.effects.append(amount)
            return amount

        @self.app.tool("shop.look", "read")
        async def look(number: int = 0) -> str:
            return "seen"

        @self.app.tool("shop.wipe", "idempotent", risk="high")
        async def wipe() -> None:
            self.effects.append(0)

        @self.app.tool("shop.order", "idempotent", attempts_max=1)
        async def order(context: Context) -> Any:
            return await context.call("refund", "shop.refund", {"amount": 5})


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(database: Database, shop: Shop) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        yield kernel


async def refused(kernel: Kernel, *arguments: Any, **options: Any) -> PolicyRefused:
    with pytest.raises(PolicyRefused) as caught:
        await run(kernel, *arguments, **options)
    return caught.value


async def deciding(kernel: Kernel, done: Executed) -> list[str]:
    digest = done.action.verdict_digest
    assert digest is not None
    async with kernel.journal.pool.connection() as connection:
        (verdict,) = (await rows.get_verdicts(connection, "acme", [digest])).values()
    return [each.policy for each in verdict.policies]


async def refusals(kernel: Kernel, tenant: str = "acme") -> int:
    async with kernel.journal.pool.connection() as connection:
        count: int = await connection.fetchval(
            "select count(*) from policy_refusals where tenant = $1", tenant
        )
    return count


async def test_a_tenant_without_policies_of_its_own_works_as_before(kernel: Kernel) -> None:
    assert ["effects"] == await deciding(kernel, await run(kernel, "shop.refund", {"amount": 1}, "k"))
    with pytest.raises(ApprovalRequired) as caught:
        await run(kernel, "shop.wipe", {}, "k")
    assert "1 of role:approver; ttl=1d" == format_terms(
        (await look(kernel, caught.value.approval_id)).approval.terms
    )


async def test_what_is_forbidden_happens_on_no_path(kernel: Kernel, shop: Shop) -> None:
    await admit(kernel, NOT_EVEN_ONCE)
    refund = call_of("shop.refund", {"amount": 5}, "k")
    error = await refused(kernel, "shop.refund", {"amount": 5}, "k")
    assert ("forbidden", "no-refunds") == (error.problem, error.policies)
    with pytest.raises(PolicyRefused):
        async for _ in execute_stream(kernel, refund):
            pass
    with pytest.raises(PolicyRefused):
        await put(kernel, "shop.refund", {"amount": 5}, "k")
    look = call_of("shop.look", {})
    results = await submit_batch(kernel, [(refund, Submission()), (look, Submission())])
    assert ["POLICY_REFUSED", None] == [getattr(each, "reason", None) for each in results]
    await put(kernel, "shop.order", {}, "o")
    await work_off(kernel)
    assert [] == shop.effects
    # The order was begun, the looking done; no refund was stored.
    assert 2 == len(await states(kernel))
    assert 5 == await refusals(kernel)


async def test_a_refusal_is_explained_by_one_row_without_the_input(kernel: Kernel) -> None:
    await admit(kernel, NOT_EVEN_ONCE)
    error = await refused(kernel, "shop.refund", {"amount": 5}, "k")
    async with kernel.journal.pool.connection() as connection:
        found = await rows.get_refusal(connection, "acme", error.refusal_id)
        assert await rows.get_refusal(connection, "evil", error.refusal_id) is None
    assert found is not None
    assert ("shop.refund", "alice", "forbidden") == (found.capability, found.subject, found.verdict.problem)
    assert 0 == len(await states(kernel))


async def test_refusals_are_kept_to_a_number(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "REFUSALS_MAX", 10)
    await admit(kernel, NOT_EVEN_ONCE)
    for _ in range(65):
        await refused(kernel, "shop.refund", {"amount": 5}, "k")
    assert await refusals(kernel) <= 10 + 64


async def test_what_no_policy_permits_is_refused(kernel: Kernel) -> None:
    await admit(kernel, '@id("looking") permit (principal, action == Action::"shop.look", resource);')
    assert "not_permitted" == (await refused(kernel, "shop.refund", {"amount": 5}, "k")).problem
    await run(kernel, "shop.look", {})


async def test_a_decision_over_inputs_is_made_for_each_input(kernel: Kernel, shop: Shop) -> None:
    await admit(kernel, UP_TO_100)
    for amount, fits in ((1, True), (100, True), (100.0001, False), (1000, False), (50, True)):
        if fits:
            await run(kernel, "shop.refund", {"amount": amount}, f"k{amount}")
        else:
            await refused(kernel, "shop.refund", {"amount": amount}, f"k{amount}")
    assert [1, 100, 50] == shop.effects


async def test_an_input_that_a_policy_cannot_see_exactly_is_refused(kernel: Kernel) -> None:
    await admit(
        kernel,
        ALL
        + '@id("large") forbid (principal, action == Action::"shop.refund", resource)'
        + 'when { context.input.amount.greaterThan(decimal("100.0")) };',
    )
    error = await refused(kernel, "shop.refund", {"amount": 100.00001}, "k")
    assert "not_readable" == error.problem


async def test_a_policy_that_fails_refuses_whatever_others_say(kernel: Kernel) -> None:
    overflow = (
        '@id("overflow") forbid (principal, action == Action::"shop.look", resource)'
        "when { context.input has number && context.input.number * 9223372036854775807 < 0 };"
    )
    await admit(kernel, ALL + overflow)
    await run(kernel, "shop.look", {"number": 1})
    error = await refused(kernel, "shop.look", {"number": 7})
    assert ("not_evaluated", "overflow") == (error.problem, error.policies)
    assert "7" not in error.text().replace(error.refusal_id, "")


async def test_a_decision_about_one_caller_is_not_taken_for_another(kernel: Kernel) -> None:
    await admit(kernel, '@id("alice") permit (principal == User::"alice", action, resource);')
    await run(kernel, "shop.look", {}, caller=ALICE)
    await refused(kernel, "shop.look", {}, caller=BOB)
    await run(kernel, "shop.look", {}, caller=ALICE)
    await admit(
        kernel,
        '@id("boss") permit (principal in Role::"boss", action, resource)'
        'unless { principal.delegates.contains("bot") || principal in Group::"gone" };',
    )
    boss = replace(BOB, roles=("boss",))
    for _ in range(2):
        await run(kernel, "shop.look", {}, caller=boss)
        await refused(kernel, "shop.look", {}, caller=BOB)
        await refused(kernel, "shop.look", {}, caller=replace(boss, roles=("bosses",)))
        await refused(kernel, "shop.look", {}, caller=replace(boss, groups=("gone",)))
        await refused(kernel, "shop.look", {}, caller=replace(boss, delegation=(Delegate(subject="bot"),)))


async def test_a_decision_about_somebody_else_is_no_decision_about_the_one_who_is_named(
    kernel: Kernel,
) -> None:
    await admit(kernel, ALL + '@id("not-alice") forbid (principal == User::"alice", action, resource);')
    await run(kernel, "shop.look", {}, caller=BOB)
    await refused(kernel, "shop.look", {}, caller=ALICE)
    await run(kernel, "shop.look", {}, caller=BOB)


async def test_what_permits_and_what_forbids_may_each_depend_on_the_input_or_not(kernel: Kernel) -> None:
    read_input = "when { context.input has number && context.input.number == 1 };"
    for permit, forbid in (("", read_input), (read_input, ";"), (read_input, read_input)):
        await admit(
            kernel,
            f'@id("p") permit (principal, action, resource) {permit or ";"}'
            f'@id("f") forbid (principal, action == Action::"shop.look", resource) {forbid}',
        )
        assert "f" == (await refused(kernel, "shop.look", {"number": 1})).policies
    await admit(kernel, f'@id("one") permit (principal, action, resource) {read_input}' + ALL)
    with_one = await run(kernel, "shop.look", {"number": 1})
    without = await run(kernel, "shop.look", {"number": 2})
    assert [["all", "one"], ["all"]] == [await deciding(kernel, each) for each in (with_one, without)]


async def test_policies_are_their_tenants_alone(kernel: Kernel) -> None:
    await admit(kernel, NOT_EVEN_ONCE)
    await refused(kernel, "shop.refund", {"amount": 5}, "k")
    await run(kernel, "shop.refund", {"amount": 5}, "k", caller=EVE)
    await admit(kernel, NOT_EVEN_ONCE, tenant="evil")
    await refused(kernel, "shop.refund", {"amount": 5}, "k2", caller=EVE)


async def test_the_operators_forbids_come_first_and_its_permits_let_nothing_through(kernel: Kernel) -> None:
    await admit(kernel, NOT_EVEN_ONCE, tenant=OPERATOR_TENANT)
    error = await refused(kernel, "shop.refund", {"amount": 5}, "k")
    assert "-/no-refunds" == error.policies
    await refused(kernel, "shop.refund", {"amount": 5}, "k", caller=EVE)
    await admit(kernel, "")
    assert "not_permitted" == (await refused(kernel, "shop.look", {})).problem
    await admit(kernel, "", tenant=OPERATOR_TENANT)
    await admit(kernel, ALL)
    await run(kernel, "shop.refund", {"amount": 5}, "k")


async def test_what_permits_ask_for_joins_and_waits_for_people(kernel: Kernel, shop: Shop) -> None:
    refunds = 'action == Action::"shop.refund", resource)'
    await admit(
        kernel,
        ALL
        + f'@id("all-refunds") @approval("1 of role:finance; ttl=4h") permit (principal, {refunds};'
        + f'@id("large") @approval("1 of role:legal") permit (principal, {refunds}'
        + 'when { context.input.amount.greaterThan(decimal("100.0")) };',
        overlays=(Overlay(pattern="shop.*", approval="1 of group:cfo; requester=may"),),
    )
    for amount, terms in (
        (5, "1 of group:cfo and 1 of role:finance; ttl=4h"),
        (500, "1 of group:cfo and 1 of role:finance and 1 of role:legal; ttl=4h"),
    ):
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "shop.refund", {"amount": amount}, f"k{amount}")
        approval = (await look(kernel, caught.value.approval_id)).approval
        assert terms == format_terms(approval.terms)
    with pytest.raises(ApprovalRequired):
        await run(kernel, "shop.look", {})
    assert [] == shop.effects
    assert ["WAITING"] * 3 == await states(kernel)


async def test_what_the_operator_asks_for_is_asked_of_every_tenant(kernel: Kernel) -> None:
    ask = '@id("watched") @approval("1 of role:auditor") permit (principal, action == Action::"shop.refund", resource);'
    await admit(kernel, ask, tenant=OPERATOR_TENANT)
    for caller in (ALICE, EVE):
        with pytest.raises(ApprovalRequired):
            await run(kernel, "shop.refund", {"amount": 5}, "k", caller=caller)
    await run(kernel, "shop.look", {})


async def test_what_the_operator_says_of_one_tenant_holds_for_that_tenant_alone(kernel: Kernel) -> None:
    # Of the same app, the same subject, and the same kind: nothing but the tenant differs.
    of_acme = '@id("watched") forbid (principal, action, resource) when { principal.tenant == "acme" };'
    await admit(kernel, of_acme, tenant=OPERATOR_TENANT)
    for _ in range(2):
        await run(kernel, "shop.look", {}, caller=EVE)
        await refused(kernel, "shop.look", {}, caller=ALICE)


async def test_what_the_operator_says_of_a_manifest_holds_for_that_manifest_alone() -> None:
    cedar = ALL + '@id("m") forbid (principal, action, resource) when { resource.manifest == "theirs" };'
    operators = CompiledSet(OPERATOR_TENANT, 1, set_of(cedar))
    capability = manifest_of(Shop().app.manifest()).capabilities[0]
    answers = []
    for manifest in ("ours", "theirs", "ours"):
        offered = Offered(capability=capability, manifest=manifest)
        answer, _ = (await operators.slice_of(offered)).ask(Question(ALICE, offered, {"amount": 5}, {}))
        answers.append(answer.problem)
    assert ["", "forbidden", ""] == answers


async def test_more_than_one_request_can_carry_is_refused(kernel: Kernel) -> None:
    people = ",".join(f"user:somebody-with-a-long-name-{number:04}" for number in range(30))
    head = "permit (principal, action, resource);"
    asks = [
        f'@id("p{number}") @approval("{number % 9 + 1} of role:r{number},{people}") {head}'
        for number in range(40)
    ]
    await admit(kernel, "".join(asks))
    assert "asks_too_much" == (await refused(kernel, "shop.look", {})).problem


async def test_overlays_add_hazards_that_policies_see(kernel: Kernel) -> None:
    forbid = (
        ALL
        + '@id("money") forbid (principal, action, resource) when { resource.hazards.contains("FINANCIAL") };'
    )
    await admit(kernel, forbid)
    await run(kernel, "shop.refund", {"amount": 1}, "k")
    overlay = Overlay(pattern="shop.refund", hazards=frozenset({Hazard.FINANCIAL}))
    await admit(kernel, forbid, overlays=(overlay,))
    await refused(kernel, "shop.refund", {"amount": 1}, "k2")
    await run(kernel, "shop.look", {})


async def test_a_policy_sees_who_called(kernel: Kernel, shop: Shop) -> None:
    await admit(
        kernel,
        ALL
        + '@id("by-order") forbid (principal, action == Action::"shop.refund", resource)'
        + 'unless { context has parent && context.parent == "shop.order" };',
    )
    await refused(kernel, "shop.refund", {"amount": 5}, "k")
    await put(kernel, "shop.order", {}, "o")
    await work_off(kernel)
    assert [5] == shop.effects


async def test_nothing_is_allowed_while_it_is_not_known_what_is_in_force(
    database: Database, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        await run(kernel, "shop.look", {})

        async def away(*_: Any) -> Any:
            raise StoreUnavailable(detail="away")

        kernel.policies.forget("acme")
        monkeypatch.setattr(rows, "get_revisions", away)
        with pytest.raises(StoreUnavailable):
            await run(kernel, "shop.look", {})
        monkeypatch.undo()
        async with kernel.journal.pool.connection() as connection:
            broken = set_of("this is no cedar;")
            await rows.put_set(
                connection, "acme", broken, after=0, policy_count=1, admitted_by="", restores=None, now=None
            )
        kernel.policies.forget("acme")
        with pytest.raises(StoreUnavailable):
            await run(kernel, "shop.look", {})


async def test_another_process_sees_a_new_set(database: Database, shop: Shop) -> None:
    async with open_kernel(database.dsn, shop.app) as first, open_kernel(database.dsn, Shop().app) as second:
        await run(second, "shop.refund", {"amount": 1}, "k")
        await admit(first, NOT_EVEN_ONCE)
        # As if the interval were over.
        (await second.policies.book("acme")).fresh_until = 0.0
        await refused(second, "shop.refund", {"amount": 1}, "k2")


async def test_two_who_replace_the_same_set_do_not_both_succeed(kernel: Kernel) -> None:
    first = await admit(kernel, ALL)
    tries = [admit(kernel, ALL + f"// {n}", expected_digest=first.digest) for n in range(5)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert 1 == sum(not isinstance(each, BaseException) for each in results)
    assert 4 == sum(isinstance(each, StaleDigest) for each in results)
    # Without an expectation each has its turn.
    results = await asyncio.gather(*(admit(kernel, ALL + f"// again {n}") for n in range(5)))
    assert {3, 4, 5, 6, 7} == {each.revision for each in results if not isinstance(each, BaseException)}


async def test_an_older_set_comes_back_as_a_new_revision(kernel: Kernel) -> None:
    await admit(kernel, NOT_EVEN_ONCE)
    await admit(kernel, ALL)
    await run(kernel, "shop.refund", {"amount": 1}, "k")
    back = await sets_of(kernel).roll_back(ALICE, "acme", 1)
    assert (3, True) == (back.revision, back.changed)
    await refused(kernel, "shop.refund", {"amount": 1}, "k2")
    assert not (await sets_of(kernel).roll_back(ALICE, "acme", 1)).changed
    await sets_of(kernel).roll_back(ALICE, "acme", 0)
    await run(kernel, "shop.refund", {"amount": 1}, "k3")
    assert [4, 3, 2, 1] == [
        each.revision for each in await sets_of(kernel).list_revisions("acme", page_size=9, before=99)
    ]


@pytest.mark.parametrize(
    ("cedar", "code"),
    [
        ('permit (principal, action == Action::"shop.refnud", resource);', "policy_invalid"),
        ("permit (principal, action, resource) when { resource.danger > 3 };", "policy_invalid"),
        (
            'permit (principal, action == Action::"shop.refund", resource) when { context.input.amount > 3 };',
            "policy_invalid",
        ),
        ("permit (principal, action, resource) when { context.input.amount };", "policy_invalid"),
        ("permit (principal, action, resource", "cedar_malformed"),
        ('@approval("2 of finance") permit (principal, action, resource);', "approval_malformed"),
        ("@approval permit (principal, action, resource);", "approval_malformed"),
    ],
)
async def test_a_set_that_does_not_fit_is_refused_whole(kernel: Kernel, cedar: str, code: str) -> None:
    with pytest.raises(PolicySetRefused) as caught:
        await admit(kernel, ALL + cedar)
    assert [("policy_set.policies[1]", code)] == sorted({(v.field, v.rule) for v in caught.value.violations})
    assert 0 == (await sets_of(kernel).get("acme")).revision
    assert isinstance(caught.value, PlacetError)
