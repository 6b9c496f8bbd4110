"""An action and all that it has called as one stream: every life, each in its order, to the end of the first."""

from contextlib import aclosing

import pytest

from placet.context import Context
from placet_server.core.kernel import Kernel
from placet_server.core.publication.descendants import watch_descendants
from placet_server.core.publication.lease import child_id
from placet_server.model.errors import MalformedRequest, NotFound
from placet_server.model.event import Event, IdleCheckpoint
from tests.core.family import family
from tests.core.kernels import ALICE, EVE, QUEUE, open_kernel, put, read, work_off
from tests.postgres import Database


async def told(kernel: Kernel, root_id: str, after: str = "") -> list[Event | IdleCheckpoint]:
    async with aclosing(watch_descendants(kernel.journal, ALICE, root_id, after)) as items:
        return [item async for item in items]


def places(items: list[Event | IdleCheckpoint]) -> list[tuple[str, int]]:
    return [(item.action_id, item.sequence) for item in items if isinstance(item, Event)]


async def test_a_family_is_told_from_every_cursor_to_its_roots_end_and_nobody_elses(
    database: Database,
) -> None:
    async def ship(context: Context) -> str:
        await context.call("first", "work.unsafe", {})
        await context.call("second", "work.reconcilable", {})
        return "shipped"

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "other")
        root_id = (await put(kernel, "work.idempotent", {}, "k")).action.action_id
        await put(kernel, "work.unsafe", {}, "another")
        await work_off(kernel)
        ids = [root_id, child_id(root_id, "first"), child_id(root_id, "second")]
        whole = await told(kernel, root_id)
        for number, item in enumerate(whole):
            assert places(whole[number + 1 :]) == places(await told(kernel, root_id, item.cursor))
        with pytest.raises(MalformedRequest):
            await told(kernel, ids[1])
        with pytest.raises(MalformedRequest):
            await told(
                kernel, (await put(kernel, "work.unsafe", {}, "third")).action.action_id, whole[0].cursor
            )
        with pytest.raises(NotFound):
            async with aclosing(watch_descendants(kernel.journal, EVE, root_id, "")) as items:
                await anext(items)
        lives = [(each, n) for each in ids for n in range(1, (await read(kernel, each)).sequence + 1)]
    assert sorted(lives) == sorted(places(whole))
    assert (root_id, 1) == places(whole)[0]
    assert {root_id} == {each for each, _ in places(whole)[-1:]}
