"""Composed actions and their steps, moved by hand: nobody runs a handler, so every order of writes is there."""

from __future__ import annotations

from placet_server.core.kernel import Kernel
from placet_server.core.publication.settle import Verdict, settle
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.kernels import claimed, put, read

DONE = Verdict(state=ActionState.SUCCEEDED, effect=EffectState.DONE, output_json="1", output_digest="")


async def family(kernel: Kernel, *owners: Kernel) -> tuple[Action, list[Action]]:
    """A composed parent that runs in `kernel`, and one step for each owner, that runs there."""
    parent = await claimed(kernel, (await put(kernel, "work.composed", {}, "parent")).action.action_id)
    children = []
    for number, owner in enumerate(owners):
        child_id = (await put(owner, "work.unsafe", {}, f"child-{number}")).action.action_id
        async with owner.journal.pool.connection() as connection:
            await connection.execute(
                "update actions set parent_id = $1, root_id = $1 where action_id = $2",
                parent.action_id,
                child_id,
            )
        children.append(await claimed(owner, child_id))
    return parent, children


def waiting_for(*children: Action) -> Verdict:
    awaited = tuple(child.action_id for child in children)
    return Verdict(state=ActionState.WAITING, cause="CHILD", awaited=awaited)


async def park(kernel: Kernel, parent: Action, *children: Action) -> Action | None:
    return await settle(kernel.journal, parent, waiting_for(*children))


async def end(kernel: Kernel, child: Action) -> None:
    assert await settle(kernel.journal, child, DONE)


async def standing(kernel: Kernel, action: Action) -> tuple[str, str | None]:
    stored = await read(kernel, action.action_id)
    return stored.state.value, stored.cause
