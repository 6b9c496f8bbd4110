"""What a handler calls is asked for in the requester's name, by way of the handler, and with no more than both have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placet.context import Context
from placet_server.core.publication.lease import child_id
from placet_server.model.action import Requester
from placet_server.model.caller import Caller, CallerKind, Delegate, attenuated
from tests.core.family import family
from tests.core.kernels import QUEUE, open_kernel, put, read, work_off
from tests.postgres import Database

CLERK = Caller(tenant="acme", subject="clerk", groups=("night",), scopes=frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("had", "limit", "left"),
    [
        ({"a", "b"}, None, {"a", "b"}),
        ({"a", "b"}, {"b", "c"}, {"b"}),
        ({"a", "b"}, set(), set()),
        ({"a", "b"}, {"*"}, {"a", "b"}),
        ({"*"}, {"a"}, {"a"}),
        ({"*"}, None, {"*"}),
        ({"*"}, {"*", "a"}, {"*"}),
    ],
)
def test_scopes_are_narrowed_and_never_gained(had: set[str], limit: set[str] | None, left: set[str]) -> None:
    caller = replace(CLERK, scopes=frozenset(had))
    asked = attenuated(caller, "orders.ship", None if limit is None else frozenset(limit))
    assert left == asked.scopes


def test_whoever_acts_for_the_subject_is_told_nearest_first_and_once_in_a_row() -> None:
    caller = replace(CLERK, delegation=(Delegate(subject="bot", kind=CallerKind.AGENT),))
    first = attenuated(caller, "orders.ship", None)
    again = attenuated(first, "orders.ship", None)
    then = attenuated(again, "payments.refund", None)
    assert first == again
    assert ["payments.refund", "orders.ship", "bot"] == [each.subject for each in then.delegation]
    assert (True, False) == (CLERK.is_person, then.is_person)
    assert (CLERK.tenant, CLERK.subject, CLERK.groups) == (then.tenant, then.subject, then.groups)


async def test_a_child_is_stored_and_run_with_what_its_parent_left_it(database: Database) -> None:
    seen: dict[str, tuple[str, ...]] = {}

    async def parent(context: Context) -> Any:
        return await context.call("pay", "work.unsafe", {}, scopes=["b", "c"])

    async def child(context: Context) -> Any:
        seen[context.capability] = context.caller.scopes
        if context.capability == "work.unsafe":
            # It asks for more than it was left.
            await context.call("look", "work.read", {}, scopes=["a", "b"])
        return {"order": "1"}

    shop = family(parent, child=child)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        root = (await put(kernel, "work.idempotent", {}, "k", caller=CLERK)).action
        await work_off(kernel)
        paid = await read(kernel, child_id(root.action_id, "pay"))
        looked = await read(kernel, child_id(paid.action_id, "look"))
    assert ["SUCCEEDED"] * 2 == [paid.state, looked.state]
    assert {"work.unsafe": ("b",), "work.read": ("b",)} == seen
    hop, further = Delegate(subject="work.idempotent"), Delegate(subject="work.unsafe")
    expected = Requester(
        tenant="acme", subject="clerk", kind="USER", groups=("night",), scopes=("b",), delegation=(hop,)
    )
    assert [expected, replace(expected, delegation=(further, hop))] == [paid.requester, looked.requester]


async def test_scopes_that_are_none_are_a_mistake_of_the_handler(database: Database) -> None:
    bad: list[Any] = ["a", [""], ["a" * 129], map(str, range(65)), ["a\x00"]]

    async def parent(context: Context) -> Any:
        for scopes in bad:
            with pytest.raises(ValueError, match="scope"):
                await context.call("pay", "work.unsafe", {}, scopes=scopes)
        return {"order": "none"}

    shop = family(parent)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        root = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        assert "SUCCEEDED" == (await read(kernel, root.action_id)).state
