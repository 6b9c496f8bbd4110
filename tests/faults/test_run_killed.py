"""SIGKILL of who runs an agent: whoever goes on with it asks the model for nothing that is remembered, and calls
nothing twice. `tests/core/test_run_remembers.py` cuts runs off at every boundary.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from placet_server.core.recovery.rescue import rescue
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import QUEUE, open_kernel, put, read, work_off
from tests.core.parking import steps
from tests.core.scripted import ASKED, age, entries
from tests.faults.mortal_run import script_with
from tests.postgres import Database


@pytest.mark.parametrize(
    ("boundary", "asked_for"),
    [("turn_answered:plan.agent:2", ["1", "2", "3"]), ("turn_received:plan.agent:2", ["1", "2", "2", "3"])],
)
async def test_a_run_whose_process_is_killed_goes_on_elsewhere(
    database: Database, tmp_path: Path, boundary: str, asked_for: list[str]
) -> None:
    ledger = tmp_path / "requests"
    script = script_with(ledger)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        mortal = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.faults.mortal_run", database.dsn, str(ledger)),
            env=os.environ | {"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": boundary},
        )
        assert -signal.SIGKILL == await asyncio.wait_for(mortal.wait(), 60)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update instances set state = 'DEAD', dead_time = now() where boot_id <> $1", kernel.boot_id
            )
        assert 1 <= (await rescue(kernel.journal)).actions
        await age(kernel)
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        assert asked_for == ledger.read_text().split()
        assert (ActionState.SUCCEEDED, 2, 3) == (
            ended.state,
            ended.attempt,
            len(await steps(kernel, ended.action_id)),
        )
        answered = [
            turn for _, type_, turn, _ in await entries(kernel, ended.action_id) if type_ == "answered"
        ]
        assert [1, 2, 3] == answered
