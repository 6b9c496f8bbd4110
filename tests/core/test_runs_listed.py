"""Runs of agents are listed alone: none is left out, whatever has become of it, and nothing else is among them."""

from dataclasses import replace

import pytest

from placet.testing.model_servers import KEY
from placet_server.core.execution.cancel_many import cancel_many
from placet_server.core.publication.read import list_actions
from placet_server.harness.provider.catalogue import Kind
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import ActionQuery
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, open_served
from tests.core.kernels import ALICE, put
from tests.core.test_agent_in_no_manifest import asking
from tests.postgres import Database

NOWHERE = "http://127.0.0.1:9"


class Desk(Shop):
    """Has what is COMPOSED, as runs are, and is none."""

    def __init__(self) -> None:
        super().__init__()

        @self.app.tool("shop.settle", "composed")
        async def settle(order: str) -> str:
            return f"settled {order}"


async def test_all_runs_are_listed_page_by_page_and_nothing_else(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    async with open_served(database.dsn, Desk(), Kind.OPENAI_COMPATIBLE, NOWHERE) as kernel:

        async def submitted(capability: str, value: object, key: str, tenant: str = "acme") -> str:
            caller = replace(ALICE, tenant=tenant)
            return (await put(kernel, capability, value, key, caller=caller)).action.action_id

        runs = []
        for number in range(3):
            runs.append(await submitted("shop.helper", ASKED, f"helper-{number}"))
            await submitted("shop.find", {"order": "A-1"}, f"find-{number}")
            await submitted("shop.settle", {"order": "A-1"}, f"settle-{number}")
            await submitted("shop.helper", ASKED, f"helper-{number}", tenant="other")
        # It waits for people, and its capability is in no manifest.
        runs.append(await submitted("placet.agent", asking("shop.find"), "inline"))
        found, after = [], ""
        while True:
            query = ActionQuery(agent_runs=True, page_size=3, after_action_id=after)
            page = await list_actions(kernel.journal, ALICE, query)
            found += [action.action_id for action in page.actions]
            after = page.next_after_action_id
            if not after:
                break
        assert sorted(runs, reverse=True) == found
        waiting = ActionQuery(agent_runs=True, states=(ActionState.WAITING,))
        page = await list_actions(kernel.journal, ALICE, waiting)
        assert [runs[-1]] == [action.action_id for action in page.actions]
        stopped = await cancel_many(
            kernel.engine, ALICE, ActionQuery(agent_runs=True), "", validate_only=False
        )
        assert (4, 4) == (stopped.matched, stopped.marked)
        page = await list_actions(kernel.journal, ALICE, ActionQuery(states=(ActionState.QUEUED,)))
        assert ["shop.find", "shop.settle"] == sorted({action.capability for action in page.actions})
