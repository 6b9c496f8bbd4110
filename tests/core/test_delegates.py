"""An agent that asks another one: it is a call like any other, in its caller's name, within a share of its budget; and
however the other one ends, that is told.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from placet.agent import Budget, DelegateChoice, ProviderRetry
from placet.app import App
from placet.testing.model_servers import KEY, Call, Fail, ModelServer, OpenAIServer, Say, Stall, Step, call
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.turn import list_turns, map_runs
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.errors import ManifestRefused
from placet_server.model.lifecycle import ActionState
from placet_server.model.manifest import Manifest
from placet_server.model.outcome import EffectState
from placet_server.rpc.convert.capability import manifest_of
from placet_server.store import run as runs
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, asked, open_shop, said, spent
from tests.core.kernels import ALICE, declare_dead, dispatch, output, put, read, until, work_off
from tests.core.parking import again, parked, steps
from tests.core.people import ANNA, APPROVE, DENY, vote
from tests.core.scripted import age
from tests.postgres import Database

DEAR = call("shop-writer", message="Word it.")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def staffed(
    choice: DelegateChoice | None = None, *, tools: Any = ("shop.pay", "shop.find"), **options: Any
) -> Shop:
    """`shop.helper` may ask `shop.writer`, whose model is `other`. `options`: of the writer."""
    shop = Shop(delegates=[choice or DelegateChoice("shop.writer")], budget=Budget(tokens=100_000))
    shop.app.agent("shop.writer", model="other", tools=tools, **options)
    return shop


def scripts(helper: Sequence[Step], writer: Sequence[Step]) -> dict[str, Sequence[Step]]:
    return {"model-x": helper, "model-y": writer}


def told(server: ModelServer, turn: int = 2) -> list[str]:
    """What the helper's model was told of the calls before this turn."""
    (request,) = of_model(server, "model-x", turn)
    return [each["content"] for each in request.json["messages"] if each["role"] == "tool"]


def of_model(server: ModelServer, model: str, turn: int) -> list[Any]:
    return [each for each in server.requests_of(turn) if each.json["model"] == model]


async def writers(kernel: Kernel, helper: Action) -> list[Action]:
    return [each for each in await steps(kernel, helper.action_id) if each.capability == "shop.writer"]


async def test_a_delegate_is_a_step_in_its_callers_name_and_what_it_has_spent_is_the_runs(
    database: Database,
) -> None:
    shop = staffed()
    helper = [Say("I ask.", DEAR), Say("All done.")]
    writer = [Say("I look.", call("shop-find", order="A-1")), Say("Dear Ann.")]
    async with (
        OpenAIServer(scripts(helper, writer)) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel)
        again = await asked(kernel)
        assert ([1, 1, 2, 2], ended.action_id) == ([r.turn for r in server.requests], again.action_id)
        assert (ActionState.SUCCEEDED, said("All done.")) == (ended.state, output(ended))
        assert ["Dear Ann."] == told(server)
        assert "Word it." in of_model(server, "model-y", 1)[0].json["messages"][-1]["content"]
        (child,) = await writers(kernel, ended)
        (found,) = await steps(kernel, child.action_id)
        assert ("turn/1/call/1", "turn/1/call/1", ended.action_id) == (
            child.step_path,
            found.step_path,
            found.root_id,
        )
        assert ["shop.writer", "shop.helper"] == [each.subject for each in found.requester.delegation]
        whole, part = await spent(kernel, ended.action_id), await spent(kernel, child.action_id)
        assert (4, 4, 2, 400, 80, 0) == (
            whole.turns,
            whole.requests,
            whole.calls,
            whole.input_tokens,
            whole.output_tokens,
            whole.reserved_tokens,
        )
        assert (2, 200, 40) == (part.turns, part.input_tokens, part.output_tokens)


async def test_equal_delegations_of_a_turn_are_one_run_and_each_call_has_its_result(
    database: Database,
) -> None:
    shop = staffed()
    helper = [Say("", DEAR, call("shop-writer", message="Other."), DEAR), Say("Over.")]
    async with (
        OpenAIServer(scripts(helper, [Say("Dear Ann.")])) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel)
        assert ["Dear Ann."] * 3 == told(server)
        children = await writers(kernel, ended)
        assert ["turn/1/call/1", "turn/1/call/2"] == [each.step_path for each in children]
        counters = await spent(kernel, ended.action_id)
        assert (400, 3, 0) == (counters.input_tokens, counters.calls, counters.reserved_tokens)
        first = (await list_turns(kernel.journal, ended, after=0, page_size=1)).turns[0]
        one, other = (each.action_id for each in children)
        assert [one, other, one] == [each.action_id for each in first.calls]
        assert {"shop.writer"} == {each.tool for each in first.calls}


@pytest.mark.parametrize(("scopes", "kept"), [(None, {"a", "b"}), (["a", "x"], {"a"}), ([], set())])
async def test_a_delegate_has_no_scope_but_those_of_its_choice_that_the_caller_has(
    database: Database, scopes: list[str] | None, kept: set[str]
) -> None:
    shop = staffed(DelegateChoice("shop.writer", scopes=scopes))
    writer = [Say("", call("shop-find", order="A-1")), Say("Dear Ann.")]
    async with (
        OpenAIServer(scripts([Say("", DEAR), Say("Over.")], writer)) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel, caller=replace(ALICE, scopes=frozenset({"a", "b"})))
        (child,) = await writers(kernel, ended)
        (found,) = await steps(kernel, child.action_id)
        assert kept == set(child.requester.scopes) == set(found.requester.scopes)


@pytest.mark.parametrize(
    ("choice", "options", "writer", "state", "words"),
    [
        (
            DelegateChoice("shop.writer", budget=Budget(tokens=4300)),
            {},
            [Say("", call("shop-find", order="A-1")), Say("Too late.")],
            ActionState.EXHAUSTED,
            "Given up: its budget is spent (SPEND_BUDGET)",
        ),
        (
            None,
            {"provider_retry": ProviderRetry(tries_max=1)},
            [Fail(500), Say("Too late.")],
            ActionState.EXHAUSTED,
            "Given up: its budget is spent (RETRY_BUDGET)",
        ),
        (None, {}, [Fail(400), Say("Too late.")], ActionState.FAILED, "Failed (model_refused)"),
        (None, {"tools": ["shop.nothing"]}, [Say("")], ActionState.FAILED, "Failed (agent_tools)"),
    ],
)
async def test_how_a_delegate_ends_is_told_as_such_and_tried_again_by_nobody(
    database: Database,
    choice: DelegateChoice | None,
    options: dict[str, Any],
    writer: list[Step],
    state: ActionState,
    words: str,
) -> None:
    shop = staffed(choice, **options)
    helper = [Say("", DEAR), Say("Over.")]
    async with (
        OpenAIServer(scripts(helper, writer)) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel)
        (child,) = await writers(kernel, ended)
        assert (state, ActionState.SUCCEEDED) == (child.state, ended.state)
        assert 1 >= len(of_model(server, "model-y", 1))
        assert 0 == len(of_model(server, "model-y", 2))
        (result,) = told(server)
        assert words in result
        counters = await spent(kernel, ended.action_id)
        assert (0, 1) == (counters.reserved_tokens, child.attempt)


async def test_delegates_of_a_turn_have_equal_shares_of_what_is_left(database: Database) -> None:
    shop = staffed(DelegateChoice("shop.writer", budget=Budget(turns=3, tokens=60_000)))
    helper = [Say("", DEAR, call("shop-writer", message="Other.")), Say("", DEAR), Say("Over.")]
    async with (
        OpenAIServer(scripts(helper, [Say("Dear Ann.")])) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel)
        children = await writers(kernel, ended)
        # What two answers of 120 tokens and two delegates of as many have left of 100,000, and the choice allows.
        assert [49_940, 49_940, 60_000] == [_budget(child)["tokens"] for child in children]
        assert {3} == {_budget(child)["turns"] for child in children}


async def test_turns_and_calls_of_a_delegate_are_its_callers_who_keeps_a_turn_for_himself(
    database: Database,
) -> None:
    looks = [Say("", call("shop-find", order=str(number))) for number in range(6)]
    async with (
        OpenAIServer(scripts([Say("", DEAR), Say("Over.")], looks)) as server,
        open_shop(database.dsn, staffed(), server) as kernel,
    ):
        ended = await asked(kernel, "k", {**ASKED, "budget": {"turns": 6, "calls": 30}})
        (child,) = await writers(kernel, ended)
        assert (4, 29) == (_budget(child)["turns"], _budget(child)["calls"])
        assert (ActionState.EXHAUSTED, "TURN_BUDGET") == (child.state, child.reason)
        assert "TURN_BUDGET" in told(server)[0]
        whole = await spent(kernel, ended.action_id)
        assert (said("Over."), 6, 5) == (output(ended), whole.turns, whole.calls)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"turns": 1}, "TURN_BUDGET"), ({"turns": 2}, "TURN_BUDGET"), ({"calls": 1}, "LOOP_BUDGET")],
)
async def test_who_has_no_turn_or_call_left_for_another_asks_none(
    database: Database, bounds: dict[str, int], reason: str
) -> None:
    async with (
        OpenAIServer(scripts([Say("", DEAR), Say("Over.")], [Say("Dear Ann.")])) as server,
        open_shop(database.dsn, staffed(), server) as kernel,
    ):
        ended = await asked(kernel, "k", {**ASKED, "budget": bounds})
        assert (ActionState.EXHAUSTED, reason, 1) == (ended.state, ended.reason, len(server.requests))
        assert [] == await writers(kernel, ended)


async def test_what_a_delegate_has_spent_is_told_of_a_run_that_ends_by_it(database: Database) -> None:
    writer = [Say("Dear Ann.", usage=(96_000, 100))]
    async with (
        OpenAIServer(scripts([Say("", DEAR), Say("Over.")], writer)) as server,
        open_shop(database.dsn, staffed(), server) as kernel,
    ):
        ended = await asked(kernel)
        assert (ActionState.EXHAUSTED, "SPEND_BUDGET", 2) == (ended.state, ended.reason, len(server.requests))
        whole = await spent(kernel, ended.action_id)
        assert (2, 96_100, 0) == (whole.turns, whole.input_tokens, whole.reserved_tokens)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_delegates_of_a_delegate_have_spent_is_the_runs_however_that_one_ended(
    database: Database, is_cancelled: bool
) -> None:
    """By a bound that it would pass to hear of them, or cancelled while they wait."""
    bound = Budget(tokens=60_000 if is_cancelled else 4400)
    shop = Shop(delegates=[DelegateChoice("shop.writer", budget=bound)], budget=Budget(tokens=100_000))
    shop.app.agent("shop.writer", model="other", delegates=["shop.clerk"])
    shop.app.agent("shop.clerk", model="third", tools=["shop.find", "shop.pay"])
    finds = [call("shop-find", order=str(number)) for number in range(4)]
    pays = [call("shop-pay", order="A-1")] if is_cancelled else []
    models = scripts(
        [Say("", DEAR), Say("Over.")], [Say("", call("shop-clerk", message="Find.")), Say("Never.")]
    )
    models["model-z"] = [Say("", *finds, *pays), Say("Never.")]
    async with OpenAIServer(models) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        (child,) = await writers(kernel, ended)
        if is_cancelled:
            await cancel_action(kernel.engine, ALICE, child.action_id, "not that")
            await work_off(kernel)
            ended, child = await read(kernel, ended.action_id), await read(kernel, child.action_id)
        how = ActionState.CANCELLED if is_cancelled else ActionState.EXHAUSTED
        assert (how, said("Over."), 4) == (child.state, output(ended), len(server.requests))
        whole = await spent(kernel, ended.action_id)
        assert (4, 2 + len(finds) + len(pays), 400, 0) == (
            whole.turns,
            whole.calls,
            whole.input_tokens,
            whole.reserved_tokens,
        )
        part = (await map_runs(kernel.journal, "acme", [child]))[child.action_id].counters
        assert (2, whole.calls - 1, 200, 0) == (
            part.turns,
            part.calls,
            part.input_tokens,
            part.reserved_tokens,
        )


def _budget(child: Action) -> dict[str, int]:
    found: dict[str, int] = json.loads(child.input_json or "")["budget"]
    return found


@pytest.mark.parametrize("dies", [False, True])
async def test_a_delegate_that_waits_parks_both_and_is_asked_nothing_again(
    database: Database, dies: bool
) -> None:
    shop = staffed()
    helper, writer = [Say("", DEAR), Say("Over.")], [Say("", call("shop-pay", order="A-1")), Say("Dear Ann.")]
    async with OpenAIServer(scripts(helper, writer)) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            waiting = await asked(kernel)
            shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
            approval = shown.waits[0].approval_id
            if not dies:
                await vote(kernel, approval, ANNA, APPROVE)
                await work_off(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            if dies:
                await vote(kernel, approval, ANNA, APPROVE)
                await work_off(kernel)
            ended = await read(kernel, waiting.action_id)
            assert [1, 1, 2, 2] == [request.turn for request in server.requests]
            assert (ActionState.SUCCEEDED, EffectState.DONE, 1) == (ended.state, ended.effect, ended.attempt)
            assert (["A-1"], ["Dear Ann."]) == (shop.paid, told(server))


async def test_a_delegate_that_is_cancelled_alone_is_told_so_and_denied_is_another_word(
    database: Database,
) -> None:
    shop = staffed(approval="1 of role:finance")
    helper = [Say("", DEAR, call("shop-writer", message="Other.")), Say("Over.")]
    async with (
        OpenAIServer(scripts(helper, [Say("Dear Ann.")])) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        waiting = await asked(kernel)
        one, other = await writers(kernel, waiting)
        await cancel_action(kernel.engine, ALICE, one.action_id, "not that")
        assert other.approval_id is not None
        await vote(kernel, other.approval_id, ANNA, DENY)
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert (ActionState.SUCCEEDED, 0) == (ended.state, len(of_model(server, "model-y", 1)))
        cancelled, denied = told(server)
        assert cancelled.startswith("Cancelled before")
        assert denied.startswith("Denied")
        assert 0 == (await spent(kernel, ended.action_id)).reserved_tokens


async def test_agents_do_not_ask_each_other_without_end(database: Database) -> None:
    shop = Shop(delegates=[DelegateChoice("shop.writer", version="1")])
    shop.app.agent("shop.writer", model="other")
    shop.app.agent("shop.writer", model="other", version="2", delegates=["shop.helper"])
    writer = [Say("", call("shop-helper", message="Help.")), Say("Over.")]
    async with (
        OpenAIServer(scripts([Say("", DEAR), Say("I could not.")], writer)) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        action = (await put(kernel, "shop.writer", ASKED, "k")).action
        await work_off(kernel)
        (refused,) = told(server)
        assert "shop.writer → shop.helper → shop.writer" in refused
        assert [1, 1, 2, 2] == [request.turn for request in server.requests]
        assert said("Over.") == output(await read(kernel, action.action_id))


async def test_a_caller_may_narrow_a_budget_and_never_widen_it(database: Database) -> None:
    shop = Shop(budget=Budget(turns=2))
    helper = [Say("", call("shop-find", order=str(n))) for n in range(3)]
    async with (
        OpenAIServer([*helper, Say("Over.")]) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        for turns, requests in ((1, 1), (9, 3)):
            ended = await asked(kernel, str(turns), {**ASKED, "budget": {"turns": turns}})
            assert (ActionState.EXHAUSTED, requests) == (ended.state, len(server.requests))


async def test_what_the_caller_may_not_see_no_model_is_told(database: Database) -> None:
    for scopes, told_of in (({"*"}, '{"card":"4242"}'), ({"a"}, '{"card":null}')):
        shop = Shop(tools=["shop.card"])

        @shop.app.tool("shop.card", "read", sensitive=["/card"])
        async def card() -> dict[str, str]:
            return {"card": "4242"}

        helper = [Say("", Call("shop-card", "{}")), Say("Over.")]
        async with OpenAIServer(helper) as server, open_shop(database.dsn, shop, server) as kernel:
            await asked(kernel, str(scopes), caller=replace(ALICE, scopes=frozenset(scopes)))
            assert [told_of] == told(server)


async def test_a_run_that_is_redriven_gives_a_further_try_what_the_one_before_has_left(
    database: Database,
) -> None:
    shop = staffed(DelegateChoice("shop.writer", budget=Budget(tokens=20_000)))
    helper, writer = [Say("", DEAR), Say("Over.")], [Say("", call("shop-pay", order="A-1")), Say("Dear Ann.")]
    async with (
        OpenAIServer(scripts(helper, writer)) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        waiting = await asked(kernel)
        await cancel_action(kernel.engine, ALICE, waiting.action_id, "not now")
        await work_off(kernel)
        assert "" == await again(kernel, waiting.action_id)
        await work_off(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
        await vote(kernel, shown.waits[0].approval_id, ANNA, APPROVE)
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        first, second = await writers(kernel, ended)
        assert (ActionState.SUCCEEDED, "turn/1/call/1#2") == (ended.state, second.step_path)
        # Asked twice over the tries, and the helper's second turn alone once more.
        assert [2, 1] == [len(of_model(server, "model-y", turn)) for turn in (1, 2)]
        assert [1, 1] == [len(of_model(server, "model-x", turn)) for turn in (1, 2)]
        assert [20_000, 19_880] == [await _bound(kernel, each) for each in (first, second)]
        counters = await spent(kernel, ended.action_id)
        assert (500, 100, 0) == (counters.input_tokens, counters.output_tokens, counters.reserved_tokens)


async def _bound(kernel: Kernel, child: Action) -> int:
    async with kernel.journal.pool.connection() as connection:
        return (await runs.map_by_ids(connection, "acme", [child.action_id]))[child.action_id].budget.tokens


async def test_a_round_over_several_manifests_is_not_admitted(database: Database) -> None:
    shop = Shop(delegates=["desk.one"])
    async with OpenAIServer([Say("")]) as server, open_shop(database.dsn, shop, server) as kernel:
        for name, delegate in (("one", "desk.two"), ("two", "desk.three")):
            await kernel.catalog.admit_local(_manifest(name, delegate))
        with pytest.raises(ManifestRefused) as caught:
            await kernel.catalog.admit_local(_manifest("three", "shop.helper"))
        (violation,) = caught.value.violations
        assert "delegates_cycle" == violation.rule
        assert "desk.three → shop.helper → desk.one → desk.two → desk.three" in violation.description


def _manifest(name: str, delegate: str) -> Manifest:
    app = App(f"desk_{name}")
    app.agent(f"desk.{name}", model="test", delegates=[delegate])
    return manifest_of(app.manifest())


@pytest.mark.parametrize("asks", ["writer", "helper"])
async def test_a_process_that_dies_over_both_asks_nobody_again_but_whose_answer_is_lost(
    database: Database, asks: str
) -> None:
    shop = staffed(DelegateChoice("shop.writer", budget=Budget(tokens=9_000, turns=1)))
    stall, over = Stall(60.0), Say("Over.")
    helper: list[Step] = [Say("", DEAR), stall, over] if asks == "helper" else [Say("", DEAR), over]
    # It has no turn left after this one.
    look = Say("", call("shop-find", order="A-1"))
    writer: list[Step] = [stall, look] if asks == "writer" else [look]
    async with OpenAIServer(scripts(helper, writer)) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            action = (await put(kernel, "shop.helper", ASKED, "k")).action
            await dispatch(kernel)
            task = asyncio.ensure_future(work_off(kernel))
            await until(lambda: len(server.requests) == (3 if asks == "helper" else 2), 20.0)
            task.cancel()
            await declare_dead(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            ended = await read(kernel, action.action_id)
            (child,) = await writers(kernel, ended)
            assert (ActionState.SUCCEEDED, ActionState.EXHAUSTED) == (ended.state, child.state)
            tries = (1, 2, 1) if asks == "helper" else (1, 1, 2)
            assert tries == (
                len(of_model(server, "model-x", 1)),
                len(of_model(server, "model-x", 2)),
                len(of_model(server, "model-y", 1)),
            )
            assert "TURN_BUDGET" in str(of_model(server, "model-x", 2)[-1].json["messages"][-1])
            whole, part = await spent(kernel, ended.action_id), await spent(kernel, child.action_id)
            # What nobody has the answer of stays charged: with who asked, and with who asked him.
            assert (3, 1, 300) == (whole.turns, part.turns, whole.input_tokens)
            assert (part.reserved_tokens > 0, whole.reserved_tokens > 0) == (asks == "writer", True)
            if asks == "writer":
                assert part.reserved_tokens == whole.reserved_tokens
