"""Many runs that stream at once, each with somebody who listens and one who has stopped reading: everybody who listens
hears every word of his own run, in order, and nobody waits for who does not.
"""

import asyncio
import os
from contextlib import aclosing, suppress

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.kernel import Kernel
from placet_server.core.publication.watch import watch_action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.event import Event, EventType
from placet_server.model.lifecycle import ActionState
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, open_shop
from tests.core.kernels import ALICE, put, read, work_off
from tests.postgres import Database

RUNS = int(os.environ.get("PLACET_STREAMING_RUNS", "50"))
TEXT = "It comes tomorrow, by the first train that there is. " * 8


async def listen(kernel: Kernel, action_id: str) -> list[Event]:
    """As a client does: on a machine that is too busy to answer in time it goes on where it was."""
    heard: list[Event] = []
    while True:
        after = heard[-1].cursor if heard else ""
        with suppress(StoreUnavailable):
            async with aclosing(watch_action(kernel.journal, ALICE, action_id, after)) as items:
                async for item in items:
                    if isinstance(item, Event):
                        heard.append(item)
            return heard


async def test_every_listener_hears_all_of_his_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    slots = QueueSettings(poll_seconds=0.0, slots_max=RUNS)
    async with (
        OpenAIServer([Say(TEXT)]) as server,
        open_shop(database.dsn, Shop(), server, queue=slots) as kernel,
    ):
        runs = [(await put(kernel, "shop.helper", ASKED, f"k{number}")).action for number in range(RUNS)]
        stuck = [watch_action(kernel.journal, ALICE, run.action_id, "") for run in runs]
        for each in stuck:
            await anext(each)
        listening = [asyncio.ensure_future(listen(kernel, run.action_id)) for run in runs]
        await work_off(kernel, 120.0)
        async with asyncio.timeout(60.0):
            told = await asyncio.gather(*listening)
        ended = [await read(kernel, run.action_id) for run in runs]
        for each in stuck:
            await each.aclose()
    assert [ActionState.SUCCEEDED] * RUNS == [action.state for action in ended]
    for events in told:
        lane = [event for event in events if not event.sequence]
        assert list(range(1, len(lane) + 1)) == [event.number for event in lane]
        assert {EventType.DELTA} == {event.type for event in lane}
        assert TEXT == "".join(event.body["text"] for event in lane)
        assert EventType.SETTLED is events[-1].type
