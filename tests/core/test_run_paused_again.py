"""A run that waits for people more than once, and for other words than yes: each time the model goes on with
exactly what they said, nothing is done twice, and nothing that was spent is given back.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from placet.agent import Budget
from placet.testing.model_servers import KEY, ModelServer, OpenAIServer, Say, Stall, Step, call
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.harness import turn
from placet_server.model.action import Action
from placet_server.model.decision import VoteVerdict
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.wait import WaitKind
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, asked, open_shop, said, spent
from tests.core.kernels import ALICE, output, put, read, run, work_off
from tests.core.parking import parked, steps
from tests.core.people import ANNA, vote
from tests.core.policies import admit
from tests.postgres import Database

ALL = '@id("all") permit (principal, action, resource);'


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def waits_of(kernel: Kernel, action: Action) -> list[Any]:
    shown = await with_family_waits(kernel.journal, await parked(kernel, action.action_id))
    return sorted(shown.waits, key=lambda wait: int(wait.step_path.rpartition("/")[2]))


def told(server: ModelServer, turn_number: int) -> list[str]:
    """The results in the newest request of the turn."""
    request = server.requests_of(turn_number)[-1]
    return [each["content"] for each in request.json["messages"] if each["role"] == "tool"]


async def test_ten_yeses_at_ten_servers_spend_nothing_and_each_is_for_its_own_call(
    database: Database,
) -> None:
    orders = [f"A-{number}" for number in range(10)]
    script = [Say("I pay.", *(call("shop-pay", order=order) for order in orders)), Say("Over.")]
    shop = Shop(budget=Budget(turns=2, calls=10, equal_calls=1))
    async with OpenAIServer(script) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            waiting = await asked(kernel)
            before = await spent(kernel, waiting.action_id)
        for order in orders:
            assert order not in shop.paid
            async with open_shop(database.dsn, shop, server) as kernel:
                await vote(kernel, (await waits_of(kernel, waiting))[0].approval_id)
                await work_off(kernel)
                after = await spent(kernel, waiting.action_id)
                if order != orders[-1]:
                    assert (before.requests, before.calls, before.tokens) == (
                        after.requests,
                        after.calls,
                        after.tokens,
                    )
            assert order == shop.paid[-1]
        async with open_shop(database.dsn, shop, server) as kernel:
            ended = await read(kernel, waiting.action_id)
            assert (ActionState.SUCCEEDED, said("Over."), 1) == (ended.state, output(ended), ended.attempt)
            assert (orders, [1, 2]) == (shop.paid, [each.turn for each in server.requests])
            assert [f'"paid {order}"' for order in orders] == told(server, 2)
            after = await spent(kernel, waiting.action_id)
            assert (2, 2, 10) == (after.turns, after.requests, after.calls)


async def test_what_waits_after_what_waited_is_shown_and_told_by_itself(database: Database) -> None:
    shop = Shop()
    script = [Say("", call("shop-pay", order="A-1")), Say("", call("shop-pay", order="A-2")), Say("Over.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = await asked(kernel)
        for number, order in enumerate(["A-1", "A-2"], start=1):
            (wait,) = await waits_of(kernel, waiting)
            assert (f"turn/{number}/call/1", WaitKind.APPROVAL) == (wait.step_path, wait.kind)
            await vote(kernel, wait.approval_id)
            await work_off(kernel)
            assert f'"paid {order}"' == told(server, number + 1)[-1]
        assert ["A-1", "A-2"] == shop.paid
        assert said("Over.") == output(await read(kernel, waiting.action_id))


async def test_a_question_of_a_model_is_answered_by_who_may_and_a_resume_alone_is_no_answer(
    database: Database,
) -> None:
    question = {"title": "Which account?", "prompt": "Two fit.", "to": "role:finance", "choices": ["A", "B"]}
    script = [Say("I ask.", call("human.input", **question)), Say("It was A.")]
    shop = Shop(tools=["human.input"])
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, shop, server, questions=True) as kernel,
    ):
        waiting = await asked(kernel)
        assert waiting.action_id == (await asked(kernel)).action_id
        (wait,) = await waits_of(kernel, waiting)
        assert (WaitKind.INPUT, "Which account?", 1) == (wait.kind, wait.title, len(server.requests))
        await vote(kernel, wait.approval_id, ANNA, VoteVerdict.ANSWER, answer_json=json.dumps("A"))
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert (ActionState.SUCCEEDED, said("It was A.")) == (ended.state, output(ended))
        assert '"A"' in told(server, 2)[0]


async def test_a_yes_that_came_too_late_or_for_what_is_no_more_is_told(database: Database) -> None:
    shop = Shop()
    script = [Say("", call("shop-pay", order="A-1"), call("shop-pay", order="A-2")), Say("Over.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = await asked(kernel)
        first, second = await waits_of(kernel, waiting)
        await vote(kernel, first.approval_id)
        # After the yes, and before anything of it has begun, what governs it changes.
        await admit(kernel, f'{ALL} @id("no") forbid (principal, action == Action::"shop.pay", resource);')
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update approvals set expire_time = now(), next_time = now() where approval_id = $1",
                second.approval_id,
            )
        await pass_time(kernel.journal)
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert (ActionState.SUCCEEDED, EffectState.NOT_DONE, []) == (ended.state, ended.effect, shop.paid)
        assert [ActionState.REFUSED, ActionState.DENIED] == [
            each.state for each in await steps(kernel, waiting.action_id)
        ]
        refused, expired = told(server, 2)
        assert (True, True) == ("Refused" in refused, "Denied" in expired)


async def test_policies_see_who_asked_and_which_agent_calls_also_after_a_restart(database: Database) -> None:
    shop = Shop()
    script = [Say("", call("shop-pay", order="A-1")), Say("", call("shop-count", order="A-1")), Say("Over.")]
    rule = (
        f'{ALL} @id("no") forbid (principal == User::"alice", action == Action::"shop.count", resource) '
        'when { context has parent && context.parent == "shop.helper" };'
    )
    async with OpenAIServer(script) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            await admit(kernel, rule)
            waiting = await asked(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            await vote(kernel, (await waits_of(kernel, waiting))[0].approval_id)
            await work_off(kernel)
            assert said("Over.") == output(await read(kernel, waiting.action_id))
            assert ([], True) == (shop.counted, "Refused" in told(server, 3)[-1])
            await run(kernel, "shop.count", {"order": "A-2"}, "alone")
            assert ["A-2"] == shop.counted


async def test_what_a_run_is_cancelled_by_is_the_last_that_it_does(database: Database) -> None:
    shop = Shop(tools=["shop.stop", "shop.count"])
    kernels: list[Kernel] = []
    runs: list[str] = []

    @shop.app.tool("shop.stop", "idempotent")
    async def stop() -> str:
        await cancel_action(kernels[0].engine, ALICE, runs[0], "enough")
        return "stopped"

    script = [Say("", call("shop-stop")), Say("", call("shop-count", order="A-1")), Say("Over.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        kernels.append(kernel)
        runs.append((await put(kernel, "shop.helper", ASKED, "k")).action.action_id)
        await work_off(kernel)
        ended = await read(kernel, runs[0])
        assert (ActionState.CANCELLED, [], 1) == (ended.state, shop.counted, len(server.requests))
        assert ActionState.CANCELLED is (await asked(kernel)).state
        assert 1 == len(server.requests)


async def test_a_call_in_an_answer_that_came_too_late_is_not_made(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "RETRY_SECONDS_FIRST", 0.0)
    shop = Shop()
    script: list[Step] = [
        Stall(1.0, after_bytes=120),
        Say("I count.", call("shop-count", order="A-1")),
        Say("Over."),
    ]
    async with (
        OpenAIServer(script) as server,
        open_shop(database.dsn, shop, server, request_timeout_seconds=0.4) as kernel,
    ):
        ended = await asked(kernel)
        assert (ActionState.SUCCEEDED, ["A-1"]) == (ended.state, shop.counted)
        assert [1, 1, 2] == [each.turn for each in server.requests]
        assert 1 == len(await steps(kernel, ended.action_id))
