"""A caller is lost in mid-call: the work is cancelled after the grace, unless somebody watches."""

import asyncio
from pathlib import Path

import pytest

from placet import App
from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.kernel import Kernel
from tests.postgres import Database
from tests.rpc.servers import config_of, running

GRACE = ExecutionSettings(reattach_grace_seconds=0.3)


class Works:
    """One tool that works until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.app = App("works")

        @self.app.tool("works.build", "idempotent")
        async def build(name: str) -> str:
            self.entered.set()
            await self.go_on.wait()
            return name


@pytest.mark.parametrize(("is_watched", "state"), [(True, "SUCCEEDED"), (False, "AMBIGUOUS")])
async def test_a_watcher_keeps_the_work_of_a_lost_caller_going(
    database: Database, tmp_path: Path, is_watched: bool, state: str
) -> None:
    works = Works()
    config = config_of(database.dsn, tmp_path)
    async with running(config, [works.app], settings=GRACE) as client:
        call = client.execute("works.build", {"name": "a"}, "k")
        await works.entered.wait()
        action_id = next(iter(client.server.kernel.engine.runs)).action_id
        request = pb.WatchActionRequest(action_id=action_id)
        watch = client.runtime.WatchAction(request, metadata=client.metadata) if is_watched else None
        if watch is not None:
            await watch.read()
        call.cancel()
        await _gone(client.server.kernel, is_watched=is_watched)
        works.go_on.set()
        wait = pb.WaitActionRequest(action_id=action_id)
        action = (await client.runtime.WaitAction(wait, metadata=client.metadata)).action
        if watch is not None:
            watch.cancel()
    assert f"ACTION_STATE_{state}" == action_pb2.ActionState.Name(action.state)


async def _gone(kernel: Kernel, *, is_watched: bool) -> None:
    """Until the grace has passed: nobody watches and the run was stopped, or twice the grace with a watcher."""
    run = next(iter(kernel.engine.runs))
    seconds = GRACE.reattach_grace_seconds * (3 if is_watched else 30)
    try:
        async with asyncio.timeout(seconds):
            await run.cancelled.wait()
    except TimeoutError:
        assert is_watched
